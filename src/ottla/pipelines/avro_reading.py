"""Avro payloads as rows: a writer's schema is compiled against the reader's once, then each payload takes one pass.

fastavro reads what was written (payloads.avro), with the limits of foreign bytes. A converter for each type turns that
into the reader's type, by Avro's rules of schema resolution: fields by name or alias, defaults, promotions, unions.
The results fit Arrow: days and microseconds as integers, decimals, structs as dicts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

from ottla.payloads.avro import BRANCH, AvroReader, is_null
from ottla.pipelines.avro_types import AvroTypes, Seen, Texts, avro_types, timestamp_unit

Convert = Callable[[Any], Any] | None
"""None leaves a value as it is. Only the converter of a union gets null."""
_PROMOTIONS = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
_EXACT = Context(prec=100)
_MICROS = 1_000_000


class Unresolvable(ValueError):
    """A writer's type cannot be read as the reader's."""


class AvroDecoder:
    """Reads the payloads of one writer's schema as the reader's. `added` has the fields that the reader does not know.

    A writer's schema that does not fit is `problem`, an error of each of its records.
    """

    def __init__(self, writer: Texts, reader: Texts, depth: int) -> None:
        *needed, schema = map(json.loads, writer)
        self._reader = AvroReader(schema, needed, raw=True)
        self._convert: Convert = None
        self.added: list[str] = []
        self.problem = ""
        resolution = _Resolution(avro_types(writer), avro_types(reader, depth), self.added)
        try:
            self._convert = resolution.converter(resolution.writer.root, resolution.reader.root, {}, "")
        except Unresolvable as problem:
            self.problem = str(problem)

    def read(self, data: bytes) -> Any:
        if self.problem:
            raise Unresolvable(self.problem)
        value = self._reader.read(data)
        return value if self._convert is None else self._convert(value)


class _Resolution:
    def __init__(self, writer: AvroTypes, reader: AvroTypes, added: list[str]) -> None:
        self.writer = writer
        self.reader = reader
        self._added = added

    def converter(self, writer: Any, reader: Any, seen: Seen, path: str) -> Convert:
        """Raises Unresolvable when no value of the writer's type has the reader's type."""
        their_kind, theirs = self.writer.definition(writer)
        kind, ours = self.reader.definition(reader)
        if their_kind == "union":
            return self._from_union(theirs, reader, seen, path)
        if kind == "union":
            return self._to_union(writer, ours, seen, path)
        if kind == their_kind == "record":
            if not _same_name(theirs, ours):
                raise _mismatch(path, theirs["name"], ours["name"])
            return self._record(theirs, ours, seen, path)
        if kind == their_kind == "array":
            return _list_converter(self.converter(theirs["items"], ours["items"], seen, f"{path}[]"))
        if kind == their_kind == "map":
            return _map_converter(self.converter(theirs["values"], ours["values"], seen, f"{path}[]"))
        if kind == their_kind == "enum" and _same_name(theirs, ours):
            return _symbol(theirs, ours, path)
        if kind == their_kind == "fixed" and _same_name(theirs, ours) and theirs["size"] == ours["size"]:
            return _logical(kind, theirs, ours)
        if kind != their_kind and (their_kind, kind) in _PROMOTIONS:
            return _promotion(kind, theirs, ours)
        if kind == their_kind and kind not in {"enum", "fixed"}:
            return _logical(kind, theirs, ours)
        raise _mismatch(path, theirs.get("name", their_kind), ours.get("name", kind))

    def _record(self, theirs: Mapping[str, Any], ours: Mapping[str, Any], seen: Seen, path: str) -> Convert:
        within = self.reader.inside(ours, seen)
        if within is None:
            return None  # the caller has dropped the field
        by_name = {field["name"]: field for field in theirs["fields"]}
        parts: list[tuple[str, str, Convert]] = []
        defaults: dict[str, Any] = {}
        sources: set[str] = set()
        for field in ours["fields"]:
            name = field["name"]
            source = next((alias for alias in (name, *field.get("aliases", ())) if alias in by_name), None)
            sources.add(source or name)
            if self.reader.spark_type(field["type"], within) is None:
                continue
            where = f"{path}.{name}" if path else name
            if source is not None:
                parts.append((name, source, self.converter(by_name[source]["type"], field["type"], within, where)))
            elif "default" in field:
                defaults[name] = self._default(field["type"], field["default"], within)
            else:
                raise Unresolvable(f"the writer's schema has no field {where}, and the field has no default")
        self._added += [f"{path}.{name}" if path else name for name in by_name if name not in sources]
        changes = [part for part in parts if part[2] is not None or part[0] != part[1]]
        if not changes and not defaults:
            return None  # Arrow takes the fields that it needs

        def convert(value: dict[str, Any]) -> dict[str, Any]:
            converted = {**value, **defaults}
            for name, source, change in changes:
                inner = value[source]
                converted[name] = inner if change is None else change(inner)
            return converted

        return convert

    def _from_union(self, branches: list[Any], reader: Any, seen: Seen, path: str) -> Convert:
        """A branch that does not fit is an error of the values that use the branch."""
        converters: dict[str, Convert] = {}
        problems: dict[str, Unresolvable] = {}
        several = sum(not is_null(branch) for branch in branches) > 1
        for number, branch in enumerate(branches):
            key = "" if is_null(branch) else BRANCH + str(number)
            try:
                converters[key] = self.converter(branch, reader, seen, path)
            except Unresolvable as problem:
                problems[key] = problem
        if not converters:
            raise next(iter(problems.values()), Unresolvable(f"{path or 'the value'}: the writer's union is empty"))
        only = next((name for name in (*converters, *problems) if name), "")
        if not several and not problems:
            change = converters.get(only)
            return None if change is None else lambda value: None if value is None else change(value)

        def convert(value: Any) -> Any:
            if value is None:
                name, inner = "", None
            elif several:
                ((name, inner),) = value.items()
            else:
                name, inner = only, value
            if name in problems:
                raise Unresolvable(*problems[name].args)
            change = converters[name]
            return inner if change is None or inner is None else change(inner)

        return convert

    def _to_union(self, writer: Any, branches: list[Any], seen: Seen, path: str) -> Convert:
        """The first branch of the same type, else the first that the writer's type can be promoted to."""
        their_kind, theirs = self.writer.definition(writer)
        number, branch = self._branch(their_kind, theirs, branches, seen, path)
        if their_kind == "null":
            return None
        merged = self.reader.merged(branches)
        if merged is not None:
            return self.converter(writer, merged, seen, path)
        change = self.converter(writer, branch, seen, path)
        if self.reader.spark_type(branch, seen) is None:
            return lambda _: {}
        name = f"member{number}"
        return lambda value: {name: value if change is None else change(value)}

    def _branch(self, kind: str, theirs: Any, branches: list[Any], seen: Seen, path: str) -> tuple[int, Any]:
        branches_left = branches if kind == "null" else self.reader.without_null(branches)
        numbered = list(enumerate(branches_left))

        def exact(branch: Any) -> bool:
            ours_kind, ours = self.reader.definition(branch)
            return ours_kind == kind and ours.get("name") == theirs.get("name")

        same = [numbered_branch for numbered_branch in numbered if exact(numbered_branch[1])]
        for number, branch in [*same, *numbered]:
            try:
                self.converter(theirs, branch, seen, path)
            except Unresolvable:
                continue
            return number, branch
        raise Unresolvable(f"{path or 'the value'}: no type of the reader's union matches {theirs.get('name', kind)}")

    def _default(self, schema: Any, value: Any, seen: Seen) -> Any:
        """A default is JSON: bytes are text of latin-1, and a union's default belongs to the first type that takes it."""
        kind, ours = self.reader.definition(schema)
        if value is None:
            return None
        if kind == "union":
            branches_left = self.reader.without_null(ours)
            fits = [(n, kind) for n, kind in enumerate(branches_left) if _takes(self.reader.definition(kind)[0], value)]
            number, branch = (fits or [(0, branches_left[0])])[0]
            inner = self._default(branch, value, seen)
            return inner if self.reader.merged(ours) is not None else {f"member{number}": inner}
        if kind == "record":
            within = self.reader.inside(ours, seen)
            values = {field["name"]: value.get(field["name"], field.get("default")) for field in ours["fields"]}
            types = {field["name"]: field["type"] for field in ours["fields"]}
            return {name: self._default(types[name], inner, within or seen) for name, inner in values.items()}
        if kind == "array":
            return [self._default(ours["items"], item, seen) for item in value]
        if kind == "map":
            return {name: self._default(ours["values"], item, seen) for name, item in value.items()}
        if kind in {"bytes", "fixed"}:
            value = value.encode("latin-1")
        change = _logical(kind, ours, ours)
        return value if change is None else change(value)


def _takes(kind: str, value: Any) -> bool:
    kinds: dict[type, tuple[str, ...]] = {
        bool: ("boolean",), int: ("int", "long", "float", "double"), float: ("float", "double"),
        str: ("string", "enum", "bytes", "fixed"), list: ("array",), dict: ("record", "map"),
    }  # fmt: skip
    return kind in kinds.get(type(value), ())


def _same_name(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Names count without their namespaces, as Confluent's registry and fastavro compare them."""
    plain = theirs["name"].rpartition(".")[2]
    aliases = ours.get("aliases", ())
    return plain == ours["name"].rpartition(".")[2] or theirs["name"] in aliases or plain in aliases


def _mismatch(path: str, theirs: str, ours: str) -> Unresolvable:
    return Unresolvable(f"{path or 'the value'}: the writer's type {theirs} cannot be read as {ours}")


def _list_converter(change: Convert) -> Convert:
    if change is None:
        return None
    return lambda values: [change(value) for value in values]


def _map_converter(change: Convert) -> Convert:
    if change is None:
        return None
    return lambda values: {name: change(value) for name, value in values.items()}


def _symbol(theirs: Mapping[str, Any], ours: Mapping[str, Any], path: str) -> Convert:
    symbols, fallback = frozenset(ours["symbols"]), ours.get("default")
    if symbols.issuperset(theirs["symbols"]):
        return None

    def convert(symbol: str) -> str:
        if symbol in symbols:
            return symbol
        if fallback is None:
            raise Unresolvable(f"{path or 'the value'}: the enum {ours['name']} has no symbol {symbol[:100]!r}")
        return str(fallback)

    return convert


def _promotion(kind: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Convert:
    if kind == "long":
        return _logical(kind, theirs, ours)
    if kind in {"float", "double"}:
        return float
    if kind == "string":
        return bytes.decode
    change = _logical(kind, theirs, ours)
    return str.encode if change is None else lambda value: change(value.encode())


def _logical(kind: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Convert:
    """What a value of the reader's logical type means is what the writer meant: scale and unit are the writer's."""
    if ours.get("logicalType") == "decimal" and kind in {"bytes", "fixed"}:
        writer = theirs if theirs.get("logicalType") == "decimal" else ours
        return _decimal(ours["precision"], writer.get("scale", 0), ours.get("scale", 0))
    family, unit = timestamp_unit(kind, ours)
    if not unit:
        return None
    their_family, their_unit = timestamp_unit("long", theirs)
    units = their_unit if their_unit and their_family == family else unit
    if units == _MICROS:
        return None
    if units > _MICROS:
        divisor = units // _MICROS
        return lambda value: value // divisor
    factor = _MICROS // units
    return lambda value: value * factor


def _decimal(precision: int, scale: int, reader_scale: int) -> Convert:
    limit = 10 ** (precision + max(scale - reader_scale, 0))

    def convert(data: bytes) -> Decimal:
        unscaled = int.from_bytes(data, "big", signed=True)
        if not -limit < unscaled < limit:
            raise ValueError(f"a decimal has more than {precision} digits")
        return Decimal(unscaled).scaleb(-scale, _EXACT)

    return convert
