"""Emit one reader and one writer for each distinct wire layout of a struct; versions that look alike share them."""

from __future__ import annotations

from collections.abc import Callable

from tools.protocol.schema import Field, Schema, snake

FORMATS = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}


class Module:
    """The functions of one generated module, deduplicated by their body."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.unpackers: set[str] = set()
        self.packers: set[str] = set()
        self.functions: list[str] = []
        self._known: dict[tuple[str, str, str], str] = {}

    def struct_fields(self, name: str) -> tuple[Field, ...]:
        return self.schema.fields if name == self.schema.name else self.schema.structs[name]

    def is_flexible(self, version: int, field: Field | None = None) -> bool:
        if field is not None and field.flexible is not None:
            return version in field.flexible
        return version in self.schema.flexible

    def function(self, verb: str, struct: str, version: int, body: list[str], signature: Callable[[str], str]) -> str:
        """The name of a function with this body, adding it when it is new."""
        key = (verb, struct, "\n".join(body))
        if key not in self._known:
            name = f"_{verb}_{snake(struct)}_v{version}"
            self._known[key] = name
            self.functions += ["", "", signature(name), *(f"    {line}" for line in body)]
        return self._known[key]

    def unpacker(self, fmt: str) -> str:
        self.unpackers.add(fmt)
        return f"_U_{fmt.replace('?', 'o')}"

    def packer(self, fmt: str) -> str:
        self.packers.add(fmt)
        return f"_P_{fmt.replace('?', 'o')}"

    def struct_constants(self) -> list[str]:
        lines = [f'_U_{f.replace("?", "o")} = _struct(">{f}").unpack_from' for f in sorted(self.unpackers)]
        return lines + [f'_P_{f.replace("?", "o")} = _struct(">{f}").pack' for f in sorted(self.packers)]


def split(module: Module, struct: str, version: int) -> tuple[list[Field], list[Field]]:
    """The plain fields of this version in order, and the tagged ones by tag."""
    present = [f for f in module.struct_fields(struct) if version in f.versions]
    tagged = sorted((f for f in present if version in f.tagged), key=lambda f: f.tag)
    return [f for f in present if version not in f.tagged], tagged
