"""Schemas of the three languages, and mutations of them: of their trees, their tokens and their bytes, from one seed."""

from __future__ import annotations

import base64
import copy
import json
import random
import re
from itertools import islice
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.registry.made_up_schemas import MadeUp

AVRO: list[Any] = [
    "int",
    {"type": "record", "name": "a.b.R", "aliases": ["Q"], "doc": "d", "fields": [
        {"name": "x", "type": ["null", "int"], "default": None, "aliases": ["y"], "order": "ignore"},
        {"name": "n", "type": ["null", "R"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}, "default": "B"},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 3}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "a.b.E"}}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ]},
    ["null", "string", {"type": "array", "items": "long"}, {"type": "error", "name": "Err", "fields": []}],
]  # fmt: skip
JSON_SCHEMAS: list[Any] = [
    True,
    {"$ref": "#/definitions/a", "definitions": {"a": {"type": "object", "properties": {"n": {"$ref": "#"}}}}},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://x/y", "$dynamicAnchor": "node",
     "allOf": [{"$ref": "#/$defs/base"}], "unevaluatedProperties": False, "properties": {"c": {"$dynamicRef": "#node"}},
     "patternProperties": {"^(?!x)[a-z]{1,3}$": {"maxLength": 3}}, "dependentSchemas": {"c": {"required": ["d"]}},
     "if": {"required": ["c"]}, "then": {"minProperties": 1}, "else": False, "oneOf": [{"type": "object"}, {"type": "string"}],
     "$defs": {"base": {"$anchor": "b", "properties": {"d": {"enum": [1, "a", None, {"q": [1]}]}, "i": {"$ref": "#b"}}}}},
    {"type": "array", "items": [{"const": 1}, {"multipleOf": 0.1}], "additionalItems": {"maximum": 5}, "contains": {}},
]  # fmt: skip
PROTOBUF = [
    """syntax = "proto3"; package a.b; import "google/type/date.proto"; option java_package = "x";
    message M { oneof o { int32 i = 1; string s = 2; } map<string, N> m = 3; repeated google.type.Date d = 4 [packed=false];
    message N { optional M parent = 1; E e = 2; } enum E { A = 0; B = 1; reserved 5 to 7; } reserved 20, 30 to max; }
    service S { rpc Do (M) returns (stream M.N) { option deprecated = true; } }""",
    """syntax = "proto2"; message P { required int32 a = 1 [default = 0x1F]; optional group G = 2 { optional bool on = 1; }
    extensions 100 to 199; optional string s = 3 [default = "q\\"x", json_name = "S"]; }
    extend P { optional double ext = 100 [(my.opt) = { a: 1 b { c: 'x' } }]; }""",
    'edition = "2023"; message Q { float f = 1; }',
]
MAX_CHARACTERS = 1_000_000
"""What the registry takes (`schema_max_bytes`)."""
MAX_HOLDERS = 20_000
"""Objects and arrays of one document: copies of copies would take minutes to write, and be refused by their length."""
_NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**300, 10**400, 1e308, 0.1, "", "a", "#", "#/", "$ref", "\ud800", "x" * 3000,
    "(a*)*b", "^(a+)+$", "\\p{L}{500}", "[", "(?=a)\\1", "\x00", "..", ".a", "a..b", "null", "union", [], {}, [[]], [{}],
    {"$ref": "#"}, {"$ref": "#/definitions/a"}, {"not": {}}, {"type": "record"}, {"type": {"type": {"type": "int"}}},
    {"unevaluatedProperties": False}, {"$dynamicRef": "#node"}, {"$ref": "#/enum/0"}, {"$recursiveRef": "#"},
]  # fmt: skip
_TOKENS = [
    "message", "M", "{", "}", ";", "=", "1", "99999999999999999999", "0x" + "F" * 50, "-1", "1e999", '"', "'", "/*", "//", "oneof",
    "map<", "<", ">", "[", "]", "(", ")", "group", "optional", "extend", ".a.b.M", "x" * 600, "9" * 60 + "a", "\ud7ff", "\x00",
    "reserved", "to", "max", "enum", "import", "google/protobuf/any.proto", "syntax", "edition", "stream", "weak", "\\",
]  # fmt: skip


class Mutations:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def pair(self) -> tuple[str, str, str]:
        """A language, a schema of it, and what is left of it after some mutations."""
        kind = self._chance.choice(["AVRO", "JSON", "JSON", "PROTOBUF"])
        if kind == "PROTOBUF":
            return kind, *self._protobuf()
        tree = copy.deepcopy(self._chance.choice(AVRO if kind == "AVRO" else JSON_SCHEMAS))
        if kind == "JSON" and self._chance.random() < 0.4:
            tree = MadeUp(self._chance).document()
        old = new = json.dumps(tree)
        plain = self._chance.random() < 0.9
        for _ in range(self._chance.randint(1, 4)):
            try:
                tree = self._mutated_tree(tree)
                if any(islice(_holders(tree), MAX_HOLDERS, None)):
                    break
                mutated = json.dumps(tree, ensure_ascii=plain)
            except RecursionError:
                break  # too deep to be copied or written: the one before is what is left
            if len(mutated) > MAX_CHARACTERS:
                break
            new = mutated
        return kind, old, self._mutated_text(new) if self._chance.random() < 0.2 else new

    def _protobuf(self) -> tuple[str, str]:
        old = self._chance.choice(PROTOBUF)
        if self._chance.random() < 0.3:
            return old, self._mutated_descriptor(old)
        tokens = re.findall(r'"[^"]*"|\w+|\s+|.', old)
        for _ in range(self._chance.randint(1, 5)):
            at = self._chance.randrange(len(tokens))
            roll = self._chance.random()
            if roll < 0.3:
                del tokens[at]
            elif roll < 0.6:
                tokens[at] = self._chance.choice([*_TOKENS, *tokens])
            elif roll < 0.8:
                tokens.insert(at, f" {self._chance.choice(_TOKENS)} ")
            else:
                end = self._chance.randrange(at, len(tokens)) + 1
                tokens[at:at] = tokens[at:end] * self._chance.randint(1, 20)
            tokens = tokens[:20_000] or [";"]
        return old, "".join(tokens)

    def _mutated_descriptor(self, text: str) -> str:
        from ottla.registry.schemas.protobuf_schema import ProtobufSchema

        data = bytearray(base64.b64decode(ProtobufSchema(text).serialized()))
        for _ in range(self._chance.randint(0, 3)):
            at = self._chance.randrange(len(data))
            data[at] = self._chance.randrange(256)
        if self._chance.random() < 0.3:
            proto = FileDescriptorProto(name="x")
            proto.message_type.add(name=self._chance.choice(["A", "A;}", "", "a b"])).field.add(
                name="f", number=self._chance.choice([0, 1, -1, 2**28]), type=self._chance.randint(1, 18),
                type_name=self._chance.choice(["", ".A", "A", "..."]), default_value='"', oneof_index=self._chance.choice([0, 7]),
            )  # fmt: skip
            data = bytearray(proto.SerializeToString())
        return base64.b64encode(bytes(data)).decode()

    def _mutated_tree(self, tree: Any) -> Any:
        holders = list(islice(_holders(tree), 2000))
        if not holders:
            return self._chance.choice(_NASTY)
        holder = self._chance.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        roll = self._chance.random()
        if not keys or roll < 0.2:
            self._add(holder)
        elif roll < 0.4:
            del holder[self._chance.choice(keys)]
        elif roll < 0.7:
            holder[self._chance.choice(keys)] = copy.deepcopy(self._chance.choice(_NASTY))
        elif roll < 0.85:
            holder[self._chance.choice(keys)] = copy.deepcopy(self._chance.choice(holders))
        else:
            self._grow(holder, self._chance.choice(keys))
        return tree

    def _add(self, holder: Any) -> None:
        value = copy.deepcopy(self._chance.choice(_NASTY))
        if isinstance(holder, list):
            holder.append(value)
        else:
            names = ["type", "allOf", "$ref", "properties", "items", "enum", "fields", "default", "$id", "pattern", "$schema",
                     "patternProperties", "unevaluatedItems", "contains", "aliases", "namespace", "size"]  # fmt: skip
            holder[self._chance.choice(names)] = value

    def _grow(self, holder: Any, key: Any) -> None:
        """Deep, wide or doubled."""
        value = holder[key]
        kind = self._chance.choice(["deep", "wide", "double"])
        if kind == "deep":
            for _ in range(self._chance.choice([5, 150, 400])):
                value = self._chance.choice([[value], {"items": value}, {"type": value}, {"allOf": [value]}])
        elif kind == "wide" and len(json.dumps(value)) < 5000:
            value = [value] * 50 if self._chance.random() < 0.5 else {f"p{i}": value for i in range(50)}
        elif len(json.dumps(value)) < 1000:
            for _ in range(4):
                value = {"allOf": [value, value], "properties": {"x": value}}
        holder[key] = value

    def _mutated_text(self, text: str) -> str:
        at = self._chance.randrange(len(text) + 1)
        junk = self._chance.choice(
            ['"', "{", "}", "]", ",", "NaN", "Infinity", "1" * 5000, "1e999", "\x00", "\\ud800", "[" * 3000]
        )
        return text[:at] + junk + text[at + self._chance.randint(0, 3) :]


def _holders(tree: Any) -> Any:
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            yield each
            waiting.extend(each.values() if isinstance(each, dict) else each)
