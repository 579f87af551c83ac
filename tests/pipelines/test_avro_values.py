"""Avro values without Spark's JVM: types, both directions, resolution of writer and reader, and bad values as errors.

fastavro writes what is read here and reads what is written here, so that no codec is its own judge.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from ottla.model.user_error import UserError
from ottla.payloads.avro import AvroReader
from ottla.pipelines.arrow_values import decoded_values, encoded_values
from ottla.pipelines.avro_reading import AvroDecoder
from ottla.pipelines.avro_types import avro_types
from ottla.pipelines.avro_writing import avro_encoder

MOMENT_MS = 1_790_000_000_123
UTC_MOMENT = datetime.fromtimestamp(MOMENT_MS // 1000, UTC).replace(microsecond=123_000)
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
NODE = {
    "type": "record", "name": "Node", "namespace": "n",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}],
}  # fmt: skip


def logical(kind, means, **more):
    return {"type": kind, "logicalType": means, **more}


def record(**fields):
    """Fields by name; a type with a default is (type, default)."""
    made = [
        {"name": name, "type": kind[0], "default": kind[1]} if isinstance(kind, tuple) else {"name": name, "type": kind}
        for name, kind in fields.items()
    ]
    return {"type": "record", "name": "R", "fields": made}


def written(schema, *values):
    payloads = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        payloads.append(out.getvalue())
    return payloads


def arrow_type(schema, depth=0):
    types = avro_types((json.dumps(schema),), depth)
    return to_arrow_type(types.spark_type(types.root), timezone="UTC")


def read(payloads, schema, reader=None, depth=0):
    """What a frame has: (value, error) of each payload."""
    wanted = schema if reader is None else reader
    decoder = AvroDecoder((json.dumps(schema),), (json.dumps(wanted),), depth)
    rows = decoded_values(pa.array(payloads, pa.binary()), decoder.read, arrow_type(wanted, depth)).to_pylist()
    return [(row["value"], row["error"]) for row in rows]


VALUES = [
    (logical("int", "date"), "date", date(2026, 11, 18).toordinal() - 719_163, date(2026, 11, 18)),
    (logical("int", "date"), "date", -719_162, date(1, 1, 1)),
    (logical("int", "time-millis"), "int", 1, 1),
    (logical("long", "time-micros"), "bigint", 86_399_999_999, 86_399_999_999),
    (logical("long", "timestamp-millis"), "timestamp", MOMENT_MS, UTC_MOMENT),
    (logical("long", "timestamp-micros"), "timestamp", MOMENT_MS * 1000, UTC_MOMENT),
    (logical("long", "timestamp-nanos"), "timestamp", MOMENT_MS * 1_000_000, UTC_MOMENT),
    (logical("long", "timestamp-millis"), "timestamp", -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    (logical("long", "local-timestamp-millis"), "timestamp_ntz", MOMENT_MS, UTC_MOMENT.replace(tzinfo=None)),
    (logical("long", "local-timestamp-micros"), "timestamp_ntz", MOMENT_MS * 1000, UTC_MOMENT.replace(tzinfo=None)),
    (logical("long", "local-timestamp-nanos"), "timestamp_ntz", MOMENT_MS * 1_000_000, UTC_MOMENT.replace(tzinfo=None)),
    (logical("bytes", "decimal", precision=6, scale=2), "decimal(6,2)", b"\xfb\x2e", Decimal("-12.34")),
    (logical("fixed", "decimal", precision=5, scale=1, name="F", size=3), "decimal(5,1)", b"\0\0\x7b", Decimal("12.3")),
    (logical("bytes", "decimal", precision=38, scale=38), "decimal(38,38)", b"\x01", Decimal(1).scaleb(-38)),
    (logical("string", "uuid"), "string", "3f2b-", "3f2b-"),
    (logical("fixed", "duration", name="D", size=12), "binary", b"123456789012", b"123456789012"),
    (logical("fixed", "uuid", name="U", size=16), "binary", b"1234567890123456", b"1234567890123456"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", "B", "B"),
    ({"type": "fixed", "name": "X", "size": 2}, "binary", b"ab", b"ab"),
    ({"type": "map", "values": ["null", "long"]}, "map<string,bigint>", {"a": 1, "b": None}, [("a", 1), ("b", None)]),
    ({"type": "array", "items": INNER}, "array<struct<x:int>>", [{"x": 1}], [{"x": 1}]),
    (["null", "long"], "bigint", None, None),
    (["null"], "string", None, None),
    (["int", "long"], "bigint", 1 << 40, 1 << 40),
    (["float", "double", "null"], "double", 0.1, 0.1),
    (["string"], "string", "one", "one"),
    (["null", "string", "long"], "struct<member0:string,member1:bigint>", 7, {"member0": None, "member1": 7}),
    (["null", "string", "long"], "struct<member0:string,member1:bigint>", None, None),
    (
        ["string", INNER, {"type": "map", "values": "int"}],
        "struct<member0:string,member1:struct<x:int>,member2:map<string,int>>",
        ("Inner", {"x": 3}),
        {"member0": None, "member1": {"x": 3}, "member2": None},
    ),
    (
        ["string", {"type": "enum", "name": "E", "symbols": ["A"]}],
        "struct<member0:string,member1:string>",
        ("E", "A"),
        {"member0": None, "member1": "A"},
    ),
]  # fmt: skip


def without_logical(schema):
    """fastavro writes and reads the integers and bytes then, which the table has."""
    if isinstance(schema, dict):
        return {name: without_logical(value) for name, value in schema.items() if name != "logicalType"}
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    return schema


@pytest.mark.parametrize(
    ("kind", "spark", "raw", "value"), VALUES, ids=[f"{n}-{case[1]}" for n, case in enumerate(VALUES)]
)
def test_a_type_in_both_directions(kind, spark, raw, value):
    schema = record(v=kind)
    types = avro_types((json.dumps(schema),))
    assert types.spark_type(types.root)["v"].dataType.simpleString() == spark
    payload = written(without_logical(schema), {"v": raw})[0]
    assert read([payload], schema) == [({"v": value}, None)]
    # And back: the same bytes; nanoseconds below a microsecond and the narrower type of a merged union are gone.
    columns = arrow_type(schema)
    rows = pa.array([{"v": value}], columns)
    again = encoded_values(rows, avro_encoder((json.dumps(schema),), columns)).to_pylist()
    assert read(again, schema) == [({"v": value}, None)]
    if kind not in (["int", "long"], ["float", "double", "null"]):
        assert again == [payload]


def test_numbers_of_one_union_stay_in_their_types():
    """A number alone does not say whether it was written as int or long; the index of the union does."""
    schema = record(v=["int", "long", "string"])
    rows = read([b"\x00\x0a", b"\x02\x0a", b"\x04\x02x"], schema)
    assert [row["v"] for row, _ in rows] == [
        {"member0": 5, "member1": None, "member2": None},
        {"member0": None, "member1": 5, "member2": None},
        {"member0": None, "member1": None, "member2": "x"},
    ]


def test_names_are_used_again_and_across_schemas():
    schema = record(a=INNER, b="Inner", c=["null", "Inner"])
    assert read(written(schema, {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}}), schema) == [
        ({"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}}, None)
    ]
    needed = json.dumps({"type": "record", "name": "other.Inner", "fields": [{"name": "x", "type": "int"}]})
    texts = (needed, json.dumps(["other.Inner", "string"]))
    assert AvroDecoder(texts, texts, 0).read(b"\x00\x06")["member0"]["x"] == 3


def test_a_union_of_references_is_read_at_all():
    """fastavro parsed a schema that is a list again for each payload, without the names that it refers to."""
    needed = {"type": "record", "name": "a.Inner", "fields": [{"name": "x", "type": "int"}]}
    assert AvroReader(["a.Inner", "string"], [needed]).read(b"\x00\x06") == {"x": 3}


def test_a_schema_is_parsed_once(monkeypatch):
    import fastavro.schema

    schema = record(v=["null", "string", "long"])
    decoder = AvroDecoder((json.dumps(schema),), (json.dumps(schema),), 0)

    def again(*_args, **_more):
        raise AssertionError("parsed again")

    for module in (fastavro, fastavro.schema):
        monkeypatch.setattr(module, "parse_schema", again)
    monkeypatch.setattr(json, "loads", again)
    assert decoder.read(b"\x04\x06")["v"] == {"member1": 3}


def test_recursion_is_refused_by_name_or_bounded():
    with pytest.raises(
        UserError, match=r"the Avro type n\.Node contains itself: set the option recursiveFieldMaxDepth"
    ):
        arrow_type(NODE)
    deep = written(NODE, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}})
    assert read(deep, NODE, depth=1) == [({"v": 1}, None)]
    assert read(deep, NODE, depth=2) == [({"v": 1, "next": {"v": 2}}, None)]


BAD = [
    (logical("bytes", "decimal", precision=4, scale=2), b"\x7f\xff\xff", "more than 4 digits"),
    (logical("fixed", "decimal", precision=4, scale=2, name="F", size=4), b"\x7f\xff\xff\xff", "more than 4 digits"),
    (logical("long", "timestamp-millis"), (1 << 63) - 1, "too large|out of range|overflow"),
    ("string", None, "utf-8"),
    ("int", None, "range|bounds|large"),
]


@pytest.mark.parametrize(("kind", "raw", "words"), BAD)
def test_a_bad_value_is_the_error_of_its_record(kind, raw, words):
    good = {"string": "x", "int": 5}.get(
        kind if isinstance(kind, str) else "", b"\0\0\0\1" if isinstance(raw, bytes) else 5
    )
    schema = without_logical(record(v=kind))
    bad = {"string": b"\x02\xff", "int": written(record(v="long"), {"v": 1 << 40})[0]}.get(kind if raw is None else "")
    payloads = [
        *written(schema, {"v": good}),
        bad or written(schema, {"v": raw})[0],
        b"",
        *written(schema, {"v": good}),
    ]
    rows = read(payloads, record(v=kind))
    assert [error is None for _, error in rows] == [True, False, False, True]
    assert pytest.importorskip("re").search(words, rows[1][1]), rows[1][1]
    assert rows[0] == rows[3]


RESOLVED = [
    (record(a="int"), record(a="long", b=("string", "x"), c=(["null", "int"], None)), {"a": 1}, {"a": 1, "b": "x", "c": None}),
    (record(a="int", gone="string"), record(a="double"), {"a": 1, "gone": "x"}, {"a": 1.0}),
    (record(a="string"), record(a="bytes"), {"a": "é"}, {"a": "é".encode()}),
    (record(a="int"), record(a=["null", "string", "long"]), {"a": 1}, {"a": {"member0": None, "member1": 1}}),
    (record(a=["null", "int"]), record(a=("long", 0)), {"a": 4}, {"a": 4}),
    (record(a="int"), record(a="int", b=("bytes", "\u00ff")), {"a": 1}, {"a": 1, "b": b"\xff"}),
    (record(a="int"), record(a="int", b=(logical("long", "timestamp-millis"), 5)), {"a": 1},
     {"a": 1, "b": datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)}),
    (record(a="int"), record(a="int", b=(INNER, {"x": 3})), {"a": 1}, {"a": 1, "b": {"x": 3}}),
    (record(a="int"), record(a="int", b=(["string", "int"], "z")), {"a": 1}, {"a": 1, "b": {"member0": "z", "member1": None}}),
    (record(a={"type": "enum", "name": "E", "symbols": ["A", "B"]}),
     record(a={"type": "enum", "name": "E", "symbols": ["A", "Z"], "default": "Z"}), {"a": "B"}, {"a": "Z"}),
    (record(a=logical("long", "timestamp-millis")), record(a=logical("long", "timestamp-micros")), {"a": 5},
     {"a": datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)}),
    (record(a=logical("bytes", "decimal", precision=4, scale=1)), record(a=logical("bytes", "decimal", precision=6, scale=2)),
     {"a": b"\x0c"}, {"a": Decimal("1.20")}),
    (record(b=["null", "string", INNER]), record(a=(["null", INNER], None), b=["null", "string", "Inner"]),
     {"b": {"x": 1}}, {"a": None, "b": {"member0": None, "member1": {"x": 1}}}),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "reader", "raw", "value"), RESOLVED)
def test_the_reader_resolves_what_was_written(writer, reader, raw, value):
    assert read(written(without_logical(writer), raw), writer, reader) == [(value, None)]


def test_aliases_name_fields_and_types():
    reader = {
        "type": "record",
        "name": "New",
        "aliases": ["R"],
        "fields": [{"name": "b", "aliases": ["a"], "type": "int"}],
    }
    assert read(written(record(a="int"), {"a": 7}), record(a="int"), reader) == [({"b": 7}, None)]


UNRESOLVED = [
    (record(a="string"), record(a="int"), {"a": "x"}, "a: the writer's type string cannot be read as int"),
    (record(a="int"), record(a="int", b="string"), {"a": 1}, "no field b, and the field has no default"),
    (record(a=["null", "int"]), record(a="int"), {"a": None}, "null cannot be read as int"),
    (record(a=INNER), record(a={**INNER, "name": "Other"}), {"a": {"x": 1}}, "Inner cannot be read as Other"),
    (record(a={"type": "enum", "name": "E", "symbols": ["A", "B"]}),
     record(a={"type": "enum", "name": "E", "symbols": ["A"]}), {"a": "B"}, "no symbol 'B'"),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "reader", "raw", "words"), UNRESOLVED)
def test_what_cannot_be_resolved_is_the_error_of_its_record(writer, reader, raw, words):
    ((value, error),) = read(written(writer, raw), writer, reader)
    assert value is None
    assert words in error


REFUSED = [
    (record(v="int"), {"v": pa.string()}, "the column v of type string is not an Avro int"),
    (record(v={**record(w="long"), "name": "W"}), {"v": pa.struct([("w", pa.timestamp("us", "UTC"))])}, r"the column v\.w of type timestamp"),
    (record(v="int"), {"other": pa.int32()}, "there is no column v, and the field of the Avro schema has no default"),
    (record(v=["null", "int", "boolean"]), {"v": pa.string()}, "the column v of type string is not a type of its union"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "columns", "words"), REFUSED)
def test_columns_that_do_not_fit_are_refused_before_the_first_row(schema, columns, words):
    with pytest.raises(UserError, match=words):
        avro_encoder((json.dumps(schema),), pa.struct(list(columns.items())))


UNFIT = [
    (record(v="int"), pa.int64(), 1 << 31, "the column v has a value that its Avro type does not take: 2147483648"),
    (record(v="int"), pa.int64(), None, "the column v is null, and its Avro type is not nullable"),
    (record(v={"type": "array", "items": "float"}), pa.list_(pa.float64()), [1e300], r"the column v\[\] has a value"),
    (record(v={"type": "enum", "name": "E", "symbols": ["A"]}), pa.string(), "B", "no symbol 'B'"),
    (record(v={"type": "fixed", "name": "F", "size": 2}), pa.binary(), b"abc", "3 bytes instead of 2"),
    (record(v=logical("bytes", "decimal", precision=4, scale=1)), pa.decimal128(10, 2), Decimal("1.25"), "1.25 is not a decimal"),
    (record(v=logical("long", "timestamp-nanos")), pa.timestamp("us", "UTC"), 1 << 60, "out of range"),
    (record(v=["string", "int"]), pa.struct([("member0", pa.string()), ("member1", pa.int32())]),
     {"member0": "a", "member1": 1}, "the column v has 2 filled fields"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "column", "value", "words"), UNFIT)
def test_a_value_that_does_not_fit_names_its_column(schema, column, value, words):
    columns = pa.struct([("v", column)])
    with pytest.raises(UserError, match=words):
        encoded_values(pa.array([{"v": value}], columns), avro_encoder((json.dumps(schema),), columns))


def test_missing_columns_have_their_defaults():
    schema = record(
        a="int", s=("string", "x"), n=(["null", "int"], None), l=({"type": "array", "items": "long"}, [1, 2]),
        m=({"type": "map", "values": "double"}, {"k": 1.5}), b=("bytes", "\u00ff"), r=(INNER, {"x": 9}),
        t=(logical("long", "timestamp-millis"), 5),
    )  # fmt: skip
    columns = pa.struct([("a", pa.int32()), ("extra", pa.int32())])
    (payload,) = encoded_values(pa.array([{"a": 1}], columns), avro_encoder((json.dumps(schema),), columns)).to_pylist()
    back = fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(without_logical(schema)), None)
    assert back == {"a": 1, "s": "x", "n": None, "l": [1, 2], "m": {"k": 1.5}, "b": b"\xff", "r": {"x": 9}, "t": 5}
