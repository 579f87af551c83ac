"""Foreign Avro, read by fastavro after its limits were checked (`avro_shape`, `avro_walk`): all of Ottla reads it here.

A schema is compiled once (`AvroReader`); a payload is then bytes in, a value or an AvroError of one line out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from ottla.payloads.avro_shape import AvroLimitError, Shapes
from ottla.payloads.avro_walk import walk
from ottla.payloads.json_text import deeper_than

_MAX_SCHEMA_DEPTH = 400
"""Of the JSON: fastavro parses a schema by recursion too. An Avro level is two of JSON."""
_BAD_SCHEMA = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_BAD_DATA = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError, MemoryError, RecursionError, struct.error,
)  # fmt: skip


class AvroError(ValueError):
    """The schema cannot be used, or the payload is no value of it; one line."""


class AvroReader:
    """Reads payloads of one writer's schema, as `reader` where that is given. `dependencies` define names before it."""

    def __init__(self, schema: Any, dependencies: Sequence[Any] = (), *, reader: Any = None) -> None:
        self._writer, named = _parsed(schema, dependencies)
        self._reader = None if reader is None else _parsed(reader, ())[0]
        try:
            shapes = Shapes(self._writer, named)
        except _BAD_SCHEMA as error:
            raise _problem("the Avro schema cannot be used", error) from error
        self._root, self.free_bytes, self.quick_bytes = shapes.root, shapes.free_bytes, shapes.quick_bytes

    def read(self, data: bytes) -> Any:
        """The value at the start of `data`; the bytes after the value are ignored."""
        return self._read(BytesIO(data), data)

    def read_whole(self, data: bytes) -> Any:
        """As `read`; AvroError when bytes are left."""
        stream = BytesIO(data)
        value = self._read(stream, data)
        left = len(data) - stream.tell()
        if left:
            raise AvroError(f"{left} bytes are left after the Avro value")
        return value

    def _read(self, stream: BytesIO, data: bytes) -> Any:
        from fastavro import schemaless_reader
        from fastavro.read import SchemaResolutionError

        try:
            if len(data) > self.free_bytes:
                walk(self._root, data)
            return schemaless_reader(stream, self._writer, self._reader)
        except AvroLimitError as error:
            raise AvroError(f"not Avro of its schema: {error}") from error
        except (*_BAD_DATA, SchemaResolutionError) as error:
            raise _problem("not Avro of its schema", error) from error


def parse_avro(schema: Any, dependencies: Sequence[Any] = ()) -> Any:
    """Fastavro's form of a schema, for its writer; AvroError when it is none."""
    return _parsed(schema, dependencies)[0]


def _parsed(schema: Any, dependencies: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        for part in (*dependencies, schema):
            _check_depth(part)
        try:
            return _by_fastavro(schema, dependencies)
        except SchemaParseException:
            # The specification ignores a logical type that is not valid, and defaults mean nothing to a writer's data.
            return _by_fastavro(_plain(schema), [_plain(dependency) for dependency in dependencies])
    except (*_BAD_SCHEMA, SchemaParseException, UnknownType) as error:
        raise _problem("the Avro schema cannot be used", error) from error


def _by_fastavro(schema: Any, dependencies: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    for dependency in dependencies:
        parse_schema(dependency, named_schemas=named)
    return parse_schema(schema, named_schemas=named), named


def _plain(schema: Any) -> Any:
    """The schema without defaults and logical types."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _plain(inner) for name, inner in schema.items() if name not in {"default", "logicalType"}}


def _check_depth(schema: Any) -> None:
    if deeper_than(schema, _MAX_SCHEMA_DEPTH):
        raise AvroLimitError(f"it nests more than {_MAX_SCHEMA_DEPTH} levels of JSON")


def _problem(what: str, error: BaseException) -> AvroError:
    detail = " ".join(str(error).split())[:500]
    return AvroError(f"{what}: {detail or type(error).__name__}")
