"""Foreign Avro: no payload takes the process with it, and payloads within the limits are read as fastavro reads them."""

from __future__ import annotations

import io
import json
import random
import resource
import subprocess
import sys
from typing import Any

import fastavro
import pytest

from ottla.payloads import avro_shape, avro_walk
from ottla.payloads.avro import AvroError, AvroReader
from ottla.payloads.avro_shape import ALWAYS, MAX_DECIMAL_BYTES, MAX_DEPTH, MAX_VALUES, _min_bytes

LIST = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
NULLS = {"type": "array", "items": "null"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ENDLESS = {"type": "record", "name": "E", "fields": [{"name": "e", "type": "E"}]}
ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "price", "type": "double"}]}}},
    ],
}  # fmt: skip


def doubled(levels: int, innermost: str) -> list[dict[str, Any]]:
    """Fields whose types each hold the one before twice: 2 ** levels values in no bytes or few."""
    fields: list[dict[str, Any]] = []
    for level in range(levels):
        inner = f"T{level - 1}" if level else innermost
        record = {"type": "record", "name": f"T{level}", "fields": [{"name": n, "type": inner} for n in "ab"]}
        fields.append({"name": f"t{level}", "type": ["null", record]})
    return fields


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Root", "fields": list(fields)}


def long(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("schema", "payload", "words"),
    [
        (LIST, b"\x02" * 20_000 + b"\0", "nests more than 200"),
        (NULLS, long(1 << 31) + b"\0", "more than 10048 values"),
        (NULLS, long(-(1 << 31)) + b"\0\0", "more than 10056 values"),
        ({"type": "array", "items": {"type": "record", "name": "R", "fields": []}}, long(1 << 40) + b"\0", "values"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, long(1 << 30) + b"\0", "values"),
        (DECIMAL, long(262_144) + b"1" * 262_144, "a decimal has 262144 bytes"),
        (ENDLESS, b"", "nests more than 200"),
        (["null", ENDLESS], b"\x02", "nests more than 200"),
        ({"type": "map", "values": LIST}, b"\x02\x02k" + b"\x02" * 20_000, "nests more than 200"),
        ({"type": "array", "items": LIST}, long(-200) + long(201) + b"\0" * 201 + b"\0", "a block's size"),
        (LIST, b"\x03" * 300, "the union has no branch"),
        (["null", ENDLESS, "string"], b"\x04" + long(-5), "Expected|a length of -5"),
        # The payload of one byte is not walked if the schema is believed to need a byte for each value.
        (record({"name": "n", "type": ["null", "Root"]}, *doubled(30, "null")), b"\0" * 30 + b"\x02", "more than 10248 values"),
        (record(*doubled(30, "null")), b"\0" * 29 + b"\x02", "more than 10240 values"),
        (record({"name": "l", "type": {"type": "array", "items": {"type": "record", "name": "I", "fields": [
            *({"name": f"n{i}", "type": "null"} for i in range(9000)), {"name": "i", "type": "int"}]}}}),
         b"\x08" + b"\0" * 5, "more than 10048 values"),
        ({"type": "array", "items": DECIMAL}, long(40) + (long(4000) + b"\x7f" * 4000) * 40 + b"\0", "more than 1000000 values"),
        ({"type": "array", "items": NULLS}, (long(1) + long(1 << 31) + b"\0") * 2 + b"\0", "values"),
    ],
)  # fmt: skip
def test_what_would_end_the_process_is_an_error(schema: Any, payload: bytes, words: str) -> None:
    with pytest.raises(AvroError, match=words):
        AvroReader(schema).read(payload)


def test_a_reader_that_skips_stands_where_the_walk_stood() -> None:
    """A block of a field that the reader lacks is read by its items, not skipped by its size."""
    from ottla.pipelines.avro_reading import AvroDecoder

    writer = {"type": "record", "name": "R", "fields": [
        {"name": "gone", "type": {"type": "array", "items": "string"}}, {"name": "n", "type": ["null", LIST]}]}  # fmt: skip
    reader = {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", LIST]}]}
    decoder = AvroDecoder((json.dumps(writer),), (json.dumps(reader),), 5)
    hidden = long(-1) + long(1) + b"\x80\xc0\x02" + b"\0" + b"\x02" * 20_000
    with pytest.raises(AvroError):
        decoder.read(hidden)
    good = long(-1) + long(2) + b"\x02x" + b"\0" + b"\x02\x02\0"
    assert decoder.read(good)["n"] == {"n": {"n": None}}


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1])
def test_what_is_within_the_limits_is_read(depth: int) -> None:
    value = AvroReader(LIST).read(b"\x02" * depth + b"\0")
    for _ in range(depth + 1):
        value = value["n"]
    assert value is None
    assert AvroReader(NULLS).read(long(5) + b"\0") == [None] * 5


def test_most_payloads_are_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual record costs one comparison; counted, not measured."""
    walks: list[int] = []
    monkeypatch.setattr(
        "ottla.payloads.avro.walk", lambda root, data: walks.append(len(data)) or avro_walk.walk(root, data)
    )
    value = {"id": 1, "who": "w", "tags": {"a": "b"}, "lines": [{"sku": "s" * 20, "price": 1.5}] * 2000}
    reader = AvroReader(ORDER)
    assert reader.read(written(ORDER, value)) == value
    assert reader.free_bytes > 100_000
    assert walks == []
    assert AvroReader(LIST).free_bytes == AvroReader(NULLS).free_bytes == AvroReader(ENDLESS).free_bytes == ALWAYS
    assert AvroReader(DECIMAL).free_bytes == MAX_DECIMAL_BYTES
    many = written({"type": "array", "items": "boolean"}, [True] * (MAX_VALUES - 10))
    assert len(AvroReader({"type": "array", "items": "boolean"}).read(many)) == MAX_VALUES - 10


@pytest.mark.parametrize("seed", range(3))
def test_the_walk_ends_where_fastavro_ends(seed: int) -> None:
    """For random values of a schema with everything in it: the walk says as many bytes as were written."""
    choose = random.Random(seed)
    schema = {
        "type": "record", "name": "All", "fields": [
            {"name": "a", "type": ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]},
            {"name": "b", "type": {"type": "enum", "name": "En", "symbols": ["X", "Y"]}},
            {"name": "c", "type": {"type": "fixed", "name": "Fx", "size": 3}},
            {"name": "d", "type": {"type": "array", "items": ["null", "All", "Fx"]}},
            {"name": "e", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
            {"name": "f", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
            {"name": "g", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }  # fmt: skip
    from datetime import UTC, datetime
    from decimal import Decimal

    def value(depth: int) -> dict[str, Any]:
        a = [None, True, choose.randrange(1 << 20), 1 << 40, 1.5, 2.5, b"bytes", "text"]
        items: list[Any] = [None, b"abc"] + ([value(depth - 1)] if depth else [])
        return {
            "a": choose.choice(a), "b": choose.choice("XY"), "c": b"abc", "d": choose.choices(items, k=choose.randrange(4)),
            "e": {f"k{i}": [1.0] * i for i in range(choose.randrange(4))}, "f": Decimal(choose.randrange(10**6)) / 100,
            "g": datetime.fromtimestamp(choose.randrange(10**9), UTC),
        }  # fmt: skip

    reader = AvroReader(schema)
    for _ in range(50):
        payload = written(schema, value(3))
        assert avro_walk.walk(reader._root, payload) == len(payload)
        assert reader.read_whole(payload) == fastavro.schemaless_reader(
            io.BytesIO(payload), fastavro.parse_schema(schema), None
        )


def test_a_schema_that_fastavro_refuses_for_a_default_or_a_logical_type_still_reads() -> None:
    bad = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]}
    assert AvroReader(bad).read(b"\x02") == {"a": 1}
    odd = {"type": "bytes", "logicalType": "decimal", "precision": -1, "scale": "x"}
    assert AvroReader(odd).read(b"\x02a") == b"a"


def test_a_schema_is_compiled_in_time_that_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of types took quadratic time, a negative size took for ever, and 2 ** 1,100 values ended in a traceback."""
    looks: list[int] = []
    monkeypatch.setattr(avro_shape, "_min_bytes", lambda shape: looks.append(1) or _min_bytes(shape))
    fields: list[Any] = [
        {"name": "t0", "type": {"type": "record", "name": "T0", "fields": [{"name": "x", "type": "int"}]}}
    ]
    for level in range(1, 1000):
        inner = {"type": "record", "name": f"T{level}", "fields": [{"name": "x", "type": f"T{level - 1}"}]}
        fields.append({"name": f"t{level}", "type": inner})
    AvroReader(record(*fields))
    assert len(looks) < 1000 * 20
    item = {"type": "array", "items": ["null", "T1099"]}
    assert AvroReader(record(*doubled(1100, "null"), {"name": "l", "type": item})).read(b"\0" * 1101)["l"] == []
    below_none = {"type": "fixed", "name": "F", "size": -5}
    with pytest.raises(AvroError, match="a fixed type of -5 bytes"):
        AvroReader(record({"name": "f", "type": below_none}, {"name": "r", "type": "Root"}))


def test_a_schema_beyond_the_limits_is_an_error() -> None:
    deep: Any = "int"
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    for schema in (
        deep,
        "Unknown",
        {"type": "record"},
        5,
        None,
        {"type": {"type": "record", "name": "X", "fields": []}},
    ):
        with pytest.raises(AvroError, match="the Avro schema cannot be used"):
            AvroReader(schema)


_IN_A_PROCESS = """
import resource, sys
from ottla.payloads.avro import AvroError, AvroReader
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
refused = 0
for schema, payload in {cases!r}:
    try:
        AvroReader(schema).read(payload)
    except AvroError:
        refused += 1
print(refused, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_the_attacks_of_issue_18_in_a_process_with_little_memory() -> None:
    """The first took a segmentation fault, the second 1.8 GB."""
    cases = [(LIST, b"\x02" * 5000 + b"\0"), (NULLS, long(200_000_000) + b"\0")]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _IN_A_PROCESS.format(cases=cases)], capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    refused, peak_kib = map(int, done.stdout.split())
    assert refused == 2
    assert peak_kib < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + 500_000
