"""`ottla.read` and `ottla.write`: topics as tables of Arrow, pandas and DuckDB, and as live records."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from socket import socket

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import ottla
from ottla.frames.records import RecordReader
from ottla.model import extras
from ottla.model.user_error import UserError
from ottla.tables.topics import TableError
from ottla.testing import Broker
from tests.robustness.server_process import environment

ORDERS = [{"id": number, "page": f"/{number % 2}"} for number in range(6)]


@pytest.fixture(scope="module")
def broker():
    with Broker(registry=True) as broker:
        yield broker


@pytest.fixture
def servers(broker, monkeypatch):
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.delenv("OTTLA_REGISTRY", raising=False)
    return broker.bootstrap_servers


def test_rows_go_in_and_come_out(broker, servers):
    topic = broker.topic()
    assert ottla.write(topic, ORDERS, key="page") == 6
    table = ottla.read(topic).to_arrow()
    assert table.schema.names == ["key", "partition", "offset", "timestamp", "id", "page"]
    assert table.select(["id", "page"]).to_pylist() == ORDERS
    assert table["key"].to_pylist() == ["/0", "/1"] * 3
    assert table["offset"].to_pylist() == list(range(6))


def test_every_library(broker, servers):
    topic = broker.topic()
    ottla.write(topic, ORDERS)
    data = ottla.read(topic)
    frame = data.pandas()
    assert frame["id"].sum() == 15
    assert data.duckdb().aggregate("count(*), max(id)").fetchall() == [(6, 5)]
    for rows in (frame[["id", "page"]], data.to_arrow().select(["id", "page"]), data.duckdb().project("id, page")):
        copy = broker.topic()
        assert ottla.write(copy, rows) == 6
        assert ottla.read(copy).to_arrow().select(["id", "page"]).to_pylist() == ORDERS


def test_polars(broker, servers):
    polars = pytest.importorskip("polars")
    topic = broker.topic()
    assert ottla.write(topic, polars.DataFrame(ORDERS)) == 6
    assert ottla.read(topic).polars()["id"].sum() == 15


def test_offsets(broker, servers):
    topic = broker.topic(partitions=3)
    ottla.write(topic, ORDERS, key="id")
    first = ottla.read(topic)
    assert sum(first.offsets.values()) == 6
    ottla.write(topic, [{"id": 100}])
    assert ottla.read(topic, start=first.offsets).to_arrow()["id"].to_pylist() == [100]
    assert ottla.read(topic, end=first.offsets).to_arrow().num_rows == 6
    assert ottla.read(topic, start=first.offsets, end=first.offsets).to_arrow().num_rows == 0
    assert ottla.read(topic, start="latest").to_arrow().num_rows == 0


def test_times(broker, servers):
    topic = broker.topic()
    broker.produce(topic, {"id": 1})
    broker.clock.advance(hours=1)
    broker.produce(topic, {"id": 2})
    now = datetime.now(UTC)
    assert ottla.read(topic, start=now + timedelta(minutes=30)).to_arrow()["id"].to_pylist() == [2]
    assert ottla.read(topic, end=now + timedelta(minutes=30)).to_arrow()["id"].to_pylist() == [1]
    assert ottla.read(topic, start=timedelta(minutes=10)).to_arrow().num_rows == 2
    assert ottla.read(topic, start=now + timedelta(hours=2)).to_arrow().num_rows == 0
    with pytest.raises(UserError, match="'newest' is not a position"):
        ottla.read(topic, start="newest").to_arrow()


def test_avro_by_the_registry(broker, servers):
    topic = broker.topic()
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    serializer = AvroSerializer(SchemaRegistryClient({"url": broker.registry_url}), json.dumps(schema))
    order = {"id": 1, "amount": Decimal("12.50")}
    broker.produce(topic, serializer(order, SerializationContext(topic, MessageField.VALUE)))
    data = ottla.read(topic, registry=broker.registry_url)
    assert data.to_arrow().select(["id", "amount"]).to_pylist() == [order]


def test_values_of_other_shapes(broker, servers):
    topic = broker.topic()
    broker.produce(topic, "text", None)
    assert ottla.read(topic).to_arrow()["value"].to_pylist() == ["text", None]
    broker.produce(topic, {"key": 5})
    assert ottla.read(topic).to_arrow()["value_key"].to_pylist() == [None, None, 5]
    raw = ottla.read(topic, schema="raw").to_arrow()
    assert raw["value"].to_pylist() == [b"text", None, b'{"key":5}']
    broker.produce(topic, [1])
    with pytest.raises(UserError, match="'value' has values of several types"):
        ottla.read(topic).to_arrow()
    typed = ottla.read(topic, start=2, end=3, schema=pa.schema([("offset", pa.int64()), ("value_key", pa.float64())]))
    assert typed.to_arrow().to_pylist() == [{"offset": 2, "value_key": 5.0}]


def test_live_records(broker, servers):
    topic = broker.topic()
    broker.produce(topic, "first")

    async def read_live() -> list[str]:
        values = []
        async for record in ottla.read(topic):
            values.append(record.value)
            if len(values) == 1:
                await asyncio.to_thread(broker.produce, topic, "second")
            if len(values) == 2:
                break
        return values

    async def read_to_the_end() -> list[int]:
        return [record.offset async for record in ottla.read(topic, end="latest")]

    assert asyncio.run(asyncio.wait_for(read_live(), 120)) == ["first", "second"]
    assert asyncio.run(asyncio.wait_for(read_to_the_end(), 120)) == [0, 1]


def test_values_without_json_of_their_own(broker, servers):
    topic = broker.topic()
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    ottla.write(topic, [{"at": moment, "amount": Decimal("1.50"), "raw": b"\xff", "text": b"x"}])
    (record,) = broker.records(topic)
    assert record.value == {
        "at": "2026-01-02T03:04:05+00:00", "amount": "1.50", "raw": {"base64": "/w=="}, "text": "x",
    }  # fmt: skip
    with pytest.raises(UserError, match="no JSON for a value of the type object"):
        ottla.write(topic, [{"x": object()}])


def test_what_cannot_be_written(broker, servers):
    topic = broker.topic()
    for frame, words in ((5, "no rows in a int"), ("text", "no rows in a str"), ([1], "of the type int")):
        with pytest.raises(UserError, match=words):
            ottla.write(topic, frame)
    with pytest.raises(UserError, match="'nr' is missing; the row has id, page"):
        ottla.write(topic, ORDERS, key="nr")
    with pytest.raises(UserError, match=r"record 0 was refused|1 of 1 records were not written"):
        ottla.write(topic, [{"text": "x" * 2_000_000}], settings={"message.max.bytes": "5000000"})
    with pytest.raises(TableError, match="does not exist"):
        ottla.read("missing").to_arrow()


def test_a_missing_library_is_named(broker, servers, monkeypatch):
    topic = broker.topic()
    ottla.write(topic, ORDERS)
    frame = ottla.read(topic).pandas()
    monkeypatch.setattr(extras, "find_spec", lambda library: None)
    with pytest.raises(UserError, match=r"ottla\.read needs pyarrow, .*: pip install 'ottla\[sql\]'"):
        ottla.read(topic).to_arrow()
    with pytest.raises(UserError, match=r"polars\(\) needs polars, .*: pip install polars"):
        ottla.read(topic).polars()
    with pytest.raises(UserError, match="pandas frame needs pyarrow, "):
        ottla.write(topic, frame)


def test_import_ottla_imports_nothing_more():
    code = """
import sys
import ottla
assert callable(ottla.read) and callable(ottla.write)
assert "pyarrow" not in sys.modules and "confluent_kafka" not in sys.modules, "with the call, not before"
try:
    ottla.reads
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, ottla; print([name for name in sys.modules if name.startswith('ottla.')])"],
        env=environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "module 'ottla' has no attribute 'reads'\n"


def test_json_has_no_nan(broker, servers):
    topic = broker.topic()
    ottla.write(topic, [{"a": float("nan"), "b": [{"c": float("inf")}], "d": 1.5}])
    assert [record.value_bytes for record in broker.records(topic)] == [b'{"a":null,"b":[{"c":null}],"d":1.5}']


def test_an_integer_that_no_column_holds(broker, servers):
    topic = broker.topic()
    broker.produce(topic, {"id": 2**70})
    with pytest.raises(UserError, match="'id' has values of several types, or out of range"):
        ottla.read(topic).to_arrow()


def test_a_partition_that_the_topic_does_not_have(broker, servers):
    topic = broker.topic()
    for places in ({"start": {3: 0}}, {"end": {3: 0}}):
        with pytest.raises(UserError, match="has no partition 3: its partitions are 0 to 0"):
            ottla.read(topic, **places).to_arrow()


def test_a_registry_that_does_not_answer(broker, servers):
    topic = broker.topic()
    broker.produce(topic, b"\0\0\0\0\4\nhello")
    assert ottla.read(topic).to_arrow()["value"].to_pylist() == ["\0\0\0\0\4\nhello"]
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(TableError, match="the schema of a record cannot be read"):
            ottla.read(topic, registry=address).to_arrow()


def test_live_records_behind_the_end_are_waited_for_calmly(broker, servers, monkeypatch):
    topic = broker.topic()
    fetches = []
    fetch = RecordReader._fetch

    def counted(*call):
        fetches.append(call)
        if len(fetches) == 2:
            broker.produce(topic, "a", "b")
        return fetch(*call)

    monkeypatch.setattr(RecordReader, "_fetch", counted)

    async def follow():
        return [record.value async for record in ottla.read(topic, start=1, end={0: 2})]

    started = time.monotonic()
    assert asyncio.run(follow()) == ["b"]
    assert len(fetches) >= 2
    assert time.monotonic() - started >= 0.49  # the wait of one empty fetch; timers count whole milliseconds
