"""The Spark types of Avro schemas: those that Spark's own from_avro gives.

A union of null and one type is that type. A union of int and long is a long, of float and double a double. A union of other
types is a struct with a field for each type: member0, member1 ... A type that contains itself needs the option
recursiveFieldMaxDepth; what lies deeper is dropped, as from_avro drops it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)  # fmt: skip

from ottla.model.user_error import UserError
from ottla.payloads.avro import named_types

MAX_DEPTH_OPTION = "recursiveFieldMaxDepth"
_MOST_DEPTH = 15
MAX_PRECISION = 38
"""Digits of Spark's decimals."""
PRIMITIVES: dict[str, DataType] = {
    "null": StringType(), "boolean": BooleanType(), "int": IntegerType(), "long": LongType(), "float": FloatType(),
    "double": DoubleType(), "bytes": BinaryType(), "string": StringType(),
}  # fmt: skip
UNITS_A_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}

Texts = tuple[str, ...]
"""A schema's text, after the texts of the schemas that it refers to."""
Seen = Mapping[str, int]
"""How often each record is open around a place."""


def max_depth(options: Mapping[str, str]) -> int:
    text = options.get(MAX_DEPTH_OPTION, "0")
    if not text.lstrip("-").isdigit() or int(text) > _MOST_DEPTH:
        raise UserError(f"{MAX_DEPTH_OPTION} is a number up to {_MOST_DEPTH}, not {text!r}")
    return max(int(text), 0)


@lru_cache(maxsize=1000)
def avro_types(texts: Texts, depth: int = 0) -> AvroTypes:
    return AvroTypes(texts, depth)


class AvroTypes:
    """A schema with the definitions of its names."""

    def __init__(self, texts: Texts, depth: int = 0) -> None:
        *needed, schema = map(json.loads, texts)
        self.root, self._named = named_types(schema, needed)
        self._depth = depth

    def definition(self, schema: Any) -> tuple[str, Any]:
        """The kind of a type and its definition; the kind of a list of types is `union`."""
        while True:
            if isinstance(schema, list):
                return "union", schema
            if isinstance(schema, str):
                if schema in PRIMITIVES:
                    return schema, {"type": schema}
                schema = self._named[schema]
            elif isinstance(schema["type"], str) and schema["type"] not in self._named:
                return ("record" if schema["type"] == "error" else schema["type"]), schema
            else:
                schema = schema["type"]

    def inside(self, record: Mapping[str, Any], seen: Seen) -> Seen | None:
        """`seen` for the fields of a record; None where the record lies deeper than the option allows."""
        times = seen.get(record["name"], 0)
        if times and not self._depth:
            raise UserError(
                f"the Avro type {record['name']} contains itself: set the option {MAX_DEPTH_OPTION} of its Format to the "
                f"number of levels to read (1 to {_MOST_DEPTH})"
            )
        if times and times >= self._depth:
            return None
        return {**seen, record["name"]: times + 1}

    def spark_type(self, schema: Any, seen: Seen | None = None) -> DataType | None:
        """None for a type that is dropped because it lies too deep."""
        seen = seen or {}
        kind, definition = self.definition(schema)
        if kind == "union":
            return self._union_type(definition, seen)
        if kind == "record":
            within = self.inside(definition, seen)
            if within is None:
                return None
            fields = [(field["name"], self.spark_type(field["type"], within)) for field in definition["fields"]]
            return StructType([StructField(name, kind) for name, kind in fields if kind is not None])
        if kind == "array":
            items = self.spark_type(definition["items"], seen)
            return None if items is None else ArrayType(items)
        if kind == "map":
            values = self.spark_type(definition["values"], seen)
            return None if values is None else MapType(StringType(), values)
        return _logical_type(kind, definition) or (
            StringType() if kind == "enum" else PRIMITIVES.get(kind, BinaryType())
        )

    def _union_type(self, branches: list[Any], seen: Seen) -> DataType | None:
        merged = self.merged(branches)
        if merged is not None:
            return self.spark_type(merged, seen)
        types = [self.spark_type(branch, seen) for branch in self.without_null(branches)]
        return StructType([StructField(f"member{n}", kind) for n, kind in enumerate(types) if kind is not None])

    def without_null(self, branches: list[Any]) -> list[Any]:
        return [branch for branch in branches if self.definition(branch)[0] != "null"]

    def merged(self, branches: list[Any]) -> Any:
        """The one type that a union has in Spark beside null; None for a struct."""
        kept = self.without_null(branches)
        if len(kept) <= 1:
            return kept[0] if kept else "null"
        kinds = frozenset(self.definition(branch)[0] for branch in kept)
        return _WIDER.get(kinds) if len(kept) == len(kinds) else None


def _logical_type(kind: str, definition: Mapping[str, Any]) -> DataType | None:
    """None for no logical type, and for those that Spark has no type for: uuid, duration, time-millis, time-micros."""
    logical = definition.get("logicalType")
    if logical == "date" and kind == "int":
        return DateType()
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        if definition["precision"] > MAX_PRECISION:
            raise UserError(
                f"an Avro decimal of {definition['precision']} digits has no Spark type: Spark's decimals have at most "
                f"{MAX_PRECISION}. Read the topic with a schema= without this logical type"
            )
        return DecimalType(definition["precision"], definition.get("scale", 0))
    family, unit = timestamp_unit(kind, definition)
    if not unit:
        return None
    return TimestampType() if family == "timestamp" else TimestampNTZType()


def timestamp_unit(kind: str, definition: Mapping[str, Any]) -> tuple[str, int]:
    """`timestamp` or `local-timestamp` with its units a second; 0 for other types."""
    family, _, unit = str(definition.get("logicalType", "")).rpartition("-")
    if kind == "long" and family in {"timestamp", "local-timestamp"}:
        return family, UNITS_A_SECOND.get(unit, 0)
    return family, 0
