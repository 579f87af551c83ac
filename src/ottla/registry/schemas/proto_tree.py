"""A .proto file as a tree: what the parser makes, the printer prints and the rules compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

SCALARS = frozenset(
    {
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    }
)  # fmt: skip


@dataclass(slots=True)
class ProtoOption:
    name: str
    """`deprecated`, `(my.option).part`"""
    value: str
    """As it stands in the text: a word, a number, a quoted string or a block in braces."""


@dataclass(slots=True)
class Field:
    name: str
    number: int
    type: str
    """A scalar's name, a type's name as written, or `map`."""
    label: str = ""
    options: list[ProtoOption] = field(default_factory=list)
    oneof: str | None = None
    key_type: str = ""
    value_type: str = ""

    @property
    def is_map(self) -> bool:
        return self.type == "map"


@dataclass(slots=True)
class EnumValue:
    name: str
    number: int
    options: list[ProtoOption] = field(default_factory=list)


@dataclass(slots=True)
class Enum:
    name: str
    values: list[EnumValue] = field(default_factory=list)
    options: list[ProtoOption] = field(default_factory=list)
    reserved: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Extend:
    target: str
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class ProtoMessage:
    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: dict[str, list[ProtoOption]] = field(default_factory=dict)
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    options: list[ProtoOption] = field(default_factory=list)
    reserved: list[str] = field(default_factory=list)
    """`2`, `4 to 6`, `8 to max`, `"name"`"""
    extensions: list[str] = field(default_factory=list)
    is_group: bool = False


@dataclass(slots=True)
class Method:
    name: str
    input: str
    output: str
    client_streaming: bool = False
    server_streaming: bool = False
    options: list[ProtoOption] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    name: str
    methods: list[Method] = field(default_factory=list)
    options: list[ProtoOption] = field(default_factory=list)


@dataclass(slots=True)
class Import:
    path: str
    kind: str = ""
    """`public`, `weak` or nothing."""


@dataclass(slots=True)
class ProtoFile:
    syntax: str = "proto2"
    edition: str = ""
    package: str = ""
    imports: list[Import] = field(default_factory=list)
    options: list[ProtoOption] = field(default_factory=list)
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)

    def types(self) -> Iterator[tuple[str, ProtoMessage | Enum]]:
        """Every message and enum by its full name."""
        prefix = f"{self.package}." if self.package else ""
        for enum in self.enums:
            yield f"{prefix}{enum.name}", enum
        for message in self.messages:
            yield from _types(message, prefix)


def _types(message: ProtoMessage, prefix: str) -> Iterator[tuple[str, ProtoMessage | Enum]]:
    name = f"{prefix}{message.name}"
    yield name, message
    for enum in message.enums:
        yield f"{name}.{enum.name}", enum
    for inner in message.messages:
        yield from _types(inner, f"{name}.")
