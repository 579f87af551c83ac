"""Why an Avro reader cannot read a writer, with the path to each reason.

The verdict is Apache avro's (`avro_schema.py`); its messages lose their place inside unions, so the reasons are walked
for again here. A test holds the two together: no reason without its verdict, no verdict without a reason.
"""

from __future__ import annotations

from typing import Any

from ottla.registry.schemas.parsed import Incompatibility

_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class Explanation:
    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()

    def compare(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        if pair in self._open:
            return []
        self._open.add(pair)
        try:
            return self._compare(reader, writer, path)
        finally:
            self._open.discard(pair)

    def _compare(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        if writer.type == "union":
            return self._from_union(reader, writer, path)
        if reader.type == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.schemas):
                return []
            return [
                _reason("MISSING_UNION_BRANCH", path, f"the union at path {path} has no branch for {_name(writer)}")
            ]
        if reader.type != writer.type:
            if writer.type in _PROMOTIONS.get(reader.type, set()):
                return []
            text = f"the type {_name(reader)} at path {path} does not match the type {_name(writer)}"
            return [_reason("TYPE_MISMATCH", path, text)]
        if reader.type == "array":
            return self.compare(reader.items, writer.items, f"{path}items/")
        if reader.type == "map":
            return self.compare(reader.values, writer.values, f"{path}values/")
        if reader.type in {"record", "error", "enum", "fixed"}:
            return self._named(reader, writer, path)
        return []

    def _from_union(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        found = []
        for index, branch in enumerate(writer.schemas):
            reasons = self.compare(reader, branch, path)
            if reasons and reader.type == "union":
                text = f"the union at path {path} lacks the branch {_name(branch)} that the other schema has"
                found.append(_reason("MISSING_UNION_BRANCH", f"{path}{index}", text))
            else:
                found.extend(reasons)
        return found

    def _named(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        found = []
        if reader.name != writer.name and writer.fullname not in _aliases(reader):
            text = f"the name {reader.fullname} at path {path}name differs from {writer.fullname} without an alias"
            found.append(_reason("NAME_MISMATCH", f"{path}name", text))
        if reader.type == "fixed":
            if reader.size != writer.size:
                text = f"the size {reader.size} at path {path}size differs from {writer.size}"
                found.append(_reason("FIXED_SIZE_MISMATCH", f"{path}size", text))
        elif reader.type == "enum":
            missing = sorted(set(writer.symbols) - set(reader.symbols))
            if missing and not reader.props.get("default"):
                text = f"the enum at path {path}symbols lacks the symbols {missing} and has no default"
                found.append(_reason("MISSING_ENUM_SYMBOLS", f"{path}symbols", text))
        else:
            found.extend(self._fields(reader, writer, path))
        return found

    def _fields(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        found = []
        for index, field in enumerate(reader.fields):
            at = f"{path}fields/{index}/"
            written = _written_field(field, writer)
            if written is not None:
                found.extend(self.compare(field.type, written.type, f"{at}type/"))
            elif not field.has_default and not (field.type.type == "enum" and field.type.props.get("default")):
                text = f"the field {field.name} at path {at} has no default value and the other schema lacks it"
                found.append(_reason("READER_FIELD_MISSING_DEFAULT_VALUE", at, text))
        return found


def _written_field(field: Any, writer: Any) -> Any:
    by_name = {candidate.name: candidate for candidate in writer.fields}
    for name in (field.name, *(field.props.get("aliases") or ())):
        if name in by_name:
            return by_name[name]
    return None


def _aliases(schema: Any) -> set[str]:
    """Full names."""
    namespace = schema.fullname.rpartition(".")[0]
    aliases = schema.props.get("aliases") or ()
    return {alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in aliases}


def _name(schema: Any) -> str:
    return str(getattr(schema, "fullname", None) or schema.type)


def _reason(kind: str, path: str, message: str) -> Incompatibility:
    return Incompatibility(kind, path, message)
