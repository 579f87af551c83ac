"""Which type a name means: Protobuf looks from the innermost scope outwards, for the first part of the name first."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.registry.schemas.parsed import SchemaProblem
from ottla.registry.schemas.proto_tree import SCALARS, Enum, ProtoMessage

Types = Mapping[str, ProtoMessage | Enum]


def resolve(name: str, scope: str, types: Types) -> str:
    """The full name of the type called `name` inside `scope`; SchemaProblem when there is none."""
    if name.startswith("."):
        if name[1:] in types:
            return name[1:]
        raise SchemaProblem(f"the type {name} is not defined")
    parts = scope.split(".") if scope else []
    for length in range(len(parts), -1, -1):
        candidate = ".".join([*parts[:length], name])
        if candidate in types:
            return candidate
    raise SchemaProblem(f'the type "{name}" is not defined (looked for from {scope or "the top"})')


def is_scalar(name: str) -> bool:
    return name in SCALARS
