"""Tables that are made piece by piece: types of all pieces, wrong times, and memory."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

import ottla
from ottla.frames import reading
from ottla.frames.columns import Columns, common_type
from ottla.model.user_error import UserError
from ottla.testing import Broker

NANOSECONDS = 1_795_000_000_000_000_000
FIELDS = {
    "whole": st.integers(-(2**53), 2**53) | st.none(),
    "number": st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.none(),
    "text": st.text() | st.none(),
    "flag": st.booleans(),
    "names": st.lists(st.text()),
    "nested": st.fixed_dictionaries({}, optional={"a": st.integers(0, 9), "b": st.lists(st.booleans() | st.none())}),
}
ROWS = st.lists(st.fixed_dictionaries({}, optional=FIELDS) | st.none(), max_size=12)


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def servers(broker, monkeypatch):
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)


def table_of(rows: list, size: int, schema: pa.Schema | None = None) -> pa.Table:
    columns = Columns(schema)
    for begin in range(0, len(rows), size):
        piece = rows[begin : begin + size]
        offsets = pa.array(range(begin, begin + len(piece)), pa.int64())
        columns.add({"offset": offsets}, [None] * len(piece), piece)
    return columns.table()


@settings(max_examples=40)
@given(rows=ROWS, size=st.integers(1, 5))
def test_the_size_of_a_piece_changes_nothing(rows, size):
    whole, pieces = table_of(rows, len(rows) or 1), table_of(rows, size)
    assert pieces.to_pylist() == whole.to_pylist()
    assert set(pieces.schema.names) == set(whole.schema.names)
    same = (FIELDS.keys() - {"nested"}) & set(
        pieces.schema.names
    )  # the fields of an object may come in a different order
    assert {name: pieces.schema.field(name).type for name in same} == {
        name: whole.schema.field(name).type for name in same
    }


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([{"v": 1}, {"v": 1.5}], pa.float64()),
        ([{"v": Decimal("1.5")}, {"v": Decimal("123.456")}], pa.decimal128(6, 3)),
        ([{"v": Decimal("1.5")}, {"v": 1000}], pa.decimal128(20, 1)),
        ([{"v": "text"}, {"v": b"\xff"}], pa.binary()),
        ([{"v": []}, {"v": [1]}, {"v": [1.5]}], pa.list_(pa.float64())),
        ([{"v": None}, {"v": {"a": 1}}, {"v": {"b": [{"c": 1}]}}],
         pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.int64())])))])),
    ],
)  # fmt: skip
def test_a_column_holds_the_values_of_all_pieces(rows, kind):
    table = table_of(rows, 1)
    assert table.schema.field("v").type == kind
    assert table.num_rows == len(rows)
    assert table["v"].null_count == sum(row["v"] is None for row in rows)


@pytest.mark.parametrize(
    "values", [[1, "a"], ["a", {"a": 1}], [True, 1], [[1], 1], [{"a": 1}, {"a": "b"}], [2**53 + 1, 1.5]]
)
def test_a_column_of_several_types_is_named(values):
    for size in (1, 2):
        with pytest.raises(UserError, match="the column 'v' has values of several types"):
            table_of([{"v": value} for value in values], size)


def test_a_schema_fixes_the_columns():
    schema = pa.schema([("offset", pa.int32()), ("v", pa.float64()), ("absent", pa.string())])
    rows = [{"v": 1, "other": 1}, None, {"v": 2.5}]
    for size in (1, 3):
        assert table_of(rows, size, schema).to_pylist() == [
            {"offset": 0, "v": 1.0, "absent": None},
            {"offset": 1, "v": None, "absent": None},
            {"offset": 2, "v": 2.5, "absent": None},
        ]
    with pytest.raises(UserError, match="the column 'v' does not fit its type double"):
        table_of([{"v": "text"}], 1, schema)


def test_decimals_beyond_128_bits():
    wide = common_type(pa.decimal128(38, 0), pa.decimal128(4, 4))
    assert wide == pa.decimal256(42, 4)


def test_a_topic_is_read_piece_by_piece(broker, monkeypatch):
    topic = broker.topic(partitions=2)
    for partition in (0, 1):
        broker.produce(topic, *[{"id": number, "even": number} if number % 2 else {"id": number + 0.5} for number in range(9)],
                       partition=partition)  # fmt: skip
    monkeypatch.setattr(reading, "_PIECE_ROWS", 4)
    table = ottla.read(topic).to_arrow()
    assert table.schema.names == ["key", "partition", "offset", "timestamp", "id", "even"]
    assert table["id"].to_pylist() == [0.5, 1, 2.5, 3, 4.5, 5, 6.5, 7, 8.5] * 2
    assert table["even"].to_pylist() == [None, 1, None, 3, None, 5, None, 7, None] * 2
    assert table["offset"].to_pylist() == [*range(9)] * 2


def test_a_wrong_unit_of_timestamps(broker):
    """Nanoseconds where milliseconds belong: the year 56 million. The rows stay readable, and the time is unchanged."""
    topic = broker.topic(settings={"message.timestamp.after.max.ms": str(2**63 - 1)})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
    for number, timestamp in enumerate((1_795_000_000_000, NANOSECONDS, NANOSECONDS // 1000)):
        producer.produce(topic, json.dumps({"id": number}).encode(), timestamp=timestamp)
    assert producer.flush(60) == 0
    table = ottla.read(topic).to_arrow()
    assert table["id"].to_pylist() == [0, 1, 2]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [1_795_000_000_000, NANOSECONDS, NANOSECONDS // 1000]
    assert len(ottla.read(topic).pandas()) == 3
    raw = ottla.read(topic, schema="raw").to_arrow()
    assert raw["timestamp"][0].as_py() == datetime.fromtimestamp(1_795_000_000, UTC)
    assert raw["timestamp"].cast(pa.int64()).to_pylist()[1] == (2**63 - 1) // 1000 * 1000  # the type's last time
    with pytest.raises(UserError, match="the column 'timestamp' does not fit its type timestamp"):
        ottla.read(topic, schema=pa.schema([("timestamp", pa.timestamp("us", tz="UTC"))])).to_arrow()


def test_records_are_python_objects_only_for_a_piece(broker):
    """60,000 records with a text of 100 characters are 60 MB as Python objects."""
    topic, count = broker.topic(), 60_000
    ottla.write(topic, ({"id": number, "text": "x" * 100} for number in range(count)))
    tracemalloc.start()
    try:
        table = ottla.read(topic).to_arrow()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert table.num_rows == count
    assert peak < 40 << 20
