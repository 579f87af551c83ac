"""Avro and Protobuf in Confluent's framing, with our own registry, and CSV: out and back, and bad values named."""

from __future__ import annotations

import json

import fastavro
import pytest

from ottla.client.schema_registry import latest_schema, register_schema
from ottla.model.user_error import UserError
from ottla.payloads.confluent import framed, unframed
from ottla.pipelines.codecs import decoded, encoded
from ottla.pipelines.ports import Format
from ottla.testing import Broker
from tests.support.schema_registry import schema_registry

pytestmark = pytest.mark.timeout(600)
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "device", "type": "string"},
            {"name": "celsius", "type": ["null", "double"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        ],
    }
)


@pytest.fixture(scope="module")
def registry():
    with Broker() as broker, schema_registry(broker.bootstrap_servers) as address:
        yield address


def test_avro_with_a_registry_csv_and_json(spark, registry):
    form = Format(kind="avro", schema=AVRO, registry=registry)
    frame = spark.sql(
        "select 'd1' as device, 20.5D as celsius, array('a', 'b') as tags union all select 'd2', null, array()"
    )
    values = frame.select(encoded(frame, form, "readings-value").alias("value"))
    schema_id, text = latest_schema(registry, "readings-value")
    raw = [bytes(row.value) for row in values.collect()]
    assert {unframed(one)[0] for one in raw} == {schema_id}
    assert fastavro.parse_schema(json.loads(text))["name"] == "Reading"
    # A reader that names no schema takes the registry's newest; bytes that are no Avro are that record's error.
    bad = spark.createDataFrame(
        [(bytearray(one),) for one in [*raw, b"junk", framed(schema_id, b"\xff")]] + [(None,)], "value binary"
    )
    back = decoded(bad, Format(kind="avro", registry=registry), "readings-value").collect()
    good = [row.value.asDict() for row in back if row.value is not None]
    assert sorted(good, key=lambda row: row["device"]) == [
        {"device": "d1", "celsius": 20.5, "tags": ["a", "b"]}, {"device": "d2", "celsius": None, "tags": []},
    ]  # fmt: skip
    errors = [row.error for row in back if row.error is not None]
    assert len(errors) == 2
    assert any("zero byte" in one for one in errors)
    assert sum(row.value is None and row.error is None for row in back) == 1  # the tombstone

    rows = spark.createDataFrame([(b"1,ada",), (b"x,bob",), (b"3,eve",)], "value binary")
    csv = decoded(rows, Format(kind="csv", schema="n int, name string"), "s").collect()
    assert [(row.value and row.value.n, row.error is not None) for row in csv] == [(1, False), (None, True), (3, False)]
    odd = spark.createDataFrame([(b"\xff",), ("é".encode(),), (None,)], "value binary")
    text = decoded(odd, Format(kind="text"), "s").collect()
    assert [(row.value, row.error) for row in text] == [(None, "not UTF-8"), ("é", None), (None, None)]
    with pytest.raises(UserError, match="needs its schema"):
        decoded(rows, Format(kind="json"), "s")
    with pytest.raises(UserError, match="is not a list of columns"):
        decoded(rows, Format(kind="json", schema="n nonsense type"), "s")


def test_protobuf_out_and_back(spark, registry):
    """The message is one that protobuf itself ships, so that no generated file is needed here."""
    name = "google.protobuf.type_pb2:EnumValue"
    proto = 'syntax = "proto3"; message EnumValue { string name = 1; int32 number = 2; }'
    schema_id = register_schema(registry, "enums-value", proto, "PROTOBUF")
    form = Format(kind="protobuf", schema=name, registry=registry)
    frame = spark.sql("select 'red' as name, 1 as number union all select 'blue', 2")
    raw = frame.select(encoded(frame, form, "enums-value").alias("value"))
    assert all(unframed(bytes(row.value))[0] == schema_id for row in raw.collect())
    back = decoded(raw, form, "enums-value").select("value.name", "value.number", "error").collect()
    assert sorted(map(tuple, back)) == [("blue", 2, None), ("red", 1, None)]
    with pytest.raises(UserError, match="MODULE:MESSAGE"):
        decoded(raw, Format(kind="protobuf", schema="nothing"), "x")


def test_a_registry_that_does_not_answer_is_one_clear_error():
    with pytest.raises(UserError, match="does not answer"):
        latest_schema("http://127.0.0.1:9", "x")
    with pytest.raises(UserError, match="begin with http"):
        latest_schema("ftp://x", "x")
