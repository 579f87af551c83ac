"""Foreign Avro, read by fastavro after its limits were checked (`avro_shape`, `avro_walk`): all of Ottla reads it here.

A schema is compiled once (`AvroReader`); a payload is then bytes in, a value or an AvroError of one line out.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

from ottla.payloads.avro_shape import AvroLimitError, Shapes
from ottla.payloads.avro_walk import walk
from ottla.payloads.json_text import deeper_than

_MAX_SCHEMA_DEPTH = 400
"""Of the JSON: fastavro parses a schema by recursion too. An Avro level is two of JSON."""
_WHOLE = "whole"
BRANCH = "ottla_branch_"
_BAD_SCHEMA = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_BAD_DATA = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError, MemoryError, RecursionError, struct.error,
)  # fmt: skip


class AvroError(ValueError):
    """The schema cannot be used, or the payload is no value of it; one line."""


class AvroReader:
    """Reads payloads of one schema. `dependencies` define names before it.

    `raw` gives values as they are written: a date is its number of days, a decimal its bytes. A value of a union of
    several types is then {BRANCH and the number of its type: value}.
    """

    def __init__(self, schema: Any, dependencies: Sequence[Any] = (), *, raw: bool = False) -> None:
        if raw:
            numbers = itertools.count()
            dependencies = [_raw(dependency, numbers) for dependency in dependencies]
            schema = _raw(schema, numbers)
        self._schema, named = _parsed(schema, dependencies)
        parsed = self._schema
        self._wrapped = not isinstance(schema, dict)
        if self._wrapped:
            self._schema = _parsed(_as_field(schema), dependencies)[0]
        try:
            shapes = Shapes(parsed, named)
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

        try:
            if len(data) > self.free_bytes:
                walk(self._root, data)
            value: Any = schemaless_reader(stream, self._schema, None)
            return value[_WHOLE] if self._wrapped else value
        except AvroLimitError as error:
            raise AvroError(f"not Avro of its schema: {error}") from error
        except _BAD_DATA as error:
            raise _problem("not Avro of its schema", error) from error


def named_types(schema: Any, dependencies: Sequence[Any] = ()) -> tuple[Any, dict[str, Any]]:
    """The schema with full names, and the definitions by name; AvroError when it is none."""
    return _parsed(schema, dependencies)


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


def _as_field(schema: Any) -> dict[str, Any]:
    """A record has the bytes of its one field. fastavro parses a union or a name again for each value, and a record once."""
    return {"type": "record", "name": "ottla.Whole", "fields": [{"name": _WHOLE, "type": schema}]}


def _raw(schema: Any, numbers: Iterator[int], depth: int = 0) -> Any:
    """The schema without logical types. Each type of a union of several types is the field of a record with a new name,
    which has the same bytes. The name has no namespace, so that names inside mean what they meant.
    """
    if depth > _MAX_SCHEMA_DEPTH:
        return schema  # refused for its depth later
    if isinstance(schema, list):
        branches = [_raw(branch, numbers, depth + 1) for branch in schema]
        if sum(not is_null(branch) for branch in schema) < 2:
            return branches
        return [
            branch if is_null(branch) else _branch(number, branch, next(numbers))
            for number, branch in enumerate(branches)
        ]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _raw(kept[name], numbers, depth + 1)
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [_raw_field(field, numbers, depth + 2) for field in kept["fields"]]
    return kept


def is_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, dict) and schema.get("type") == "null")


def _raw_field(field: Any, numbers: Iterator[int], depth: int) -> Any:
    """Without its default, which means nothing to a writer's data."""
    if not isinstance(field, dict) or "type" not in field:
        return field
    kept = {name: value for name, value in field.items() if name not in {"default", "logicalType"}}
    return kept | {"type": _raw(field["type"], numbers, depth)}


def _branch(number: int, schema: Any, unique: int) -> dict[str, Any]:
    return {"type": "record", "name": f"{BRANCH}{unique}", "fields": [{"name": f"{BRANCH}{number}", "type": schema}]}


def _check_depth(schema: Any) -> None:
    if deeper_than(schema, _MAX_SCHEMA_DEPTH):
        raise AvroLimitError(f"it nests more than {_MAX_SCHEMA_DEPTH} levels of JSON")


def _problem(what: str, error: BaseException) -> AvroError:
    detail = " ".join(str(error).split())[:500]
    return AvroError(f"{what}: {detail or type(error).__name__}")
