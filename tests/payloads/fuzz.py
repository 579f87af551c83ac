"""Mutated payloads through every decoder of foreign values: `python -m tests.payloads.fuzz --payloads 1000000`.

Avro, JSON and Protobuf of schemas that recurse, hold arrays of nothing or run patterns; and the records inside of
batches, compressed and not. Whatever the bytes, a decoder answers with a value or with an error of its own kind; the
process ends with the counts and its largest size, and neither a signal nor a traceback.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import fastavro

from ottla.connect.converters import ConvertError, converter
from ottla.console.messages.decode import Decoder
from ottla.model.errors import KafkaError
from ottla.payloads.avro import AvroError, AvroReader
from ottla.pipelines.avro_reading import AvroDecoder
from ottla.protocol.records import iterate_records
from ottla.protocol.records_check import next_checked_spans
from ottla.protocol.records_header import HEADER_BYTES, batch_size_at
from ottla.registry.schemas.avro_schema import AvroSchema
from ottla.registry.schemas.json_schema import JsonSchema
from ottla.registry.schemas.protobuf_schema import ProtobufSchema
from tests.interop.malformed_batches import walked
from tests.protocol.mutations import mutated

TREE: dict[str, Any] = {
    "type": "record", "name": "Tree", "fields": [
        {"name": "name", "type": "string"}, {"name": "left", "type": ["null", "Tree"]},
        {"name": "all", "type": {"type": "array", "items": ["null", "Tree", "double"]}},
        {"name": "by", "type": {"type": "map", "values": "Tree"}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
    ],
}  # fmt: skip
NARROW = {"type": "record", "name": "Tree", "fields": [TREE["fields"][1]]}
PATTERNS = {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#"}, {"pattern": r"^(a*)*\1$"}]}}
PROTO = """syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto";
message T { string s = 1; T t = 2; repeated T ts = 3; map<string, T> m = 4; google.protobuf.Any any = 5;
google.protobuf.Timestamp at = 6; repeated int64 n = 7; double d = 8; }"""


def tree(depth: int) -> dict[str, Any]:
    inner = tree(depth - 1) if depth else None
    return {
        "name": "n" * 10, "left": inner, "all": [None, 1.5, *([inner] if inner else [])], "by": {"k": inner} if inner else {},
        "nothing": [None] * 3, "price": b"\x05", "at": 5, "day": 7, "id": "12345678-1234-5678-1234-567812345678", "kind": "A",
        "hash": b"hash",
    }  # fmt: skip


def avro_seed() -> bytes:
    """Written without logical types, whose values would have to be made first."""
    plain = json.loads(json.dumps(TREE).replace('"logicalType"', '"was"'))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), tree(3))
    return out.getvalue()


class OneSchema:
    """As much of the console's registry as a decoder asks for."""

    configured = True

    def __init__(self, kind: str, text: str, serialized: str = "") -> None:
        self._schema = {"schemaType": kind, "schema": text, "resolved": {}, "references": []}
        self._serialized = serialized

    def schema(self, _schema_id: int) -> dict[str, Any]:
        return self._schema

    def serialized(self, _schema_id: int) -> str:
        return self._serialized


Target = tuple[bytes, Callable[[bytes], object], type[Exception]]


def targets() -> list[Target]:
    """A good payload, what decodes it, and the error that it may end in."""
    avro, text = avro_seed(), json.dumps({"a": {"b": ["aab", 1.5e300, None]}, "c": "aa" * 10}).encode()
    proto = ProtobufSchema(PROTO)
    message = proto.message_class("T")()
    message.ts.add().t.t.s = "deep"
    message.m["k"].n.extend([1, 2, 3])
    message.any.Pack(message.__class__(s="packed"))
    message.at.seconds = 5
    binary = b"\0" + message.SerializeToString()
    head = b"\0" + struct.pack(">I", 1)
    serialized = proto.serialized()
    reading = AvroReader(TREE)
    found: list[Target] = [
        (avro, reading.read, AvroError),
        (avro, AvroDecoder((json.dumps(TREE),), (json.dumps(NARROW),), 5).read, ValueError),
        (avro, AvroSchema(json.dumps(TREE)).validator(), AvroError),
        (text, JsonSchema(json.dumps(PATTERNS)).validator(), ValueError),
        (b"[" * 150 + b"]" * 150, JsonSchema("{}").validator(), ValueError),
        (binary, proto.validator(), ValueError),
        (head + avro, Decoder(OneSchema("AVRO", json.dumps(TREE))).decode, AvroError),
        (head + text, Decoder(OneSchema("JSON", "{}")).decode, ValueError),
        (text, Decoder(OneSchema("JSON", "{}")).decode, ValueError),
        (head + binary, Decoder(OneSchema("PROTOBUF", PROTO, serialized)).decode, ValueError),
        (text, converter({"value.converter": "json"}, "value").read, ConvertError),
    ]
    batches = walked()
    found += [(batch, _records, KafkaError) for name, batch in batches.items() if name.startswith("two good")]
    return [*found, (batches["two good, none"][HEADER_BYTES:], _checked, KafkaError)]


def _records(data: bytes) -> int:
    if len(data) < HEADER_BYTES or batch_size_at(data, 0) > len(data):
        return 0
    return sum(1 for _ in iterate_records(data, limit=1 << 20))


def _checked(data: bytes) -> int:
    return len(next_checked_spans(data, 0, 2, compressed=True)[0])


def run(payloads: int, seed: int) -> Counter[str]:
    random = Random(seed)
    outcomes: Counter[str] = Counter()
    all_targets = targets()
    for raw, decode, _ in all_targets:
        decode(raw)  # a seed that its decoder refuses would test little
    for number in range(payloads):
        raw, decode, error = all_targets[number % len(all_targets)]
        data = mutated(random, raw)
        try:
            decode(data)
            outcomes["answered"] += 1
        except error:
            outcomes["refused"] += 1
        except Exception as problem:
            raise RuntimeError(f"seed {seed}, payload {number}: {data.hex()}") from problem
    return outcomes


def peak_mib() -> int:
    """The largest size of this program. Linux counts that of the process which started it into `ru_maxrss`."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--payloads", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=18)
    given = arguments.parse_args()
    outcomes = run(given.payloads, given.seed)
    print(json.dumps({**outcomes, "peak_mib": peak_mib()}))


if __name__ == "__main__":
    main()
