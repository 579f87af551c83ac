"""Values for any generated message, found by looking at its class: no message is named here.

Integers come in the width that the wire gives them. The class does not say it (every integer is an `int`), so it is
found by asking the writers: the widest power of two that every version of the message can pack.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from random import Random
from types import ModuleType, UnionType
from typing import Any, NamedTuple

from hypothesis import strategies as st

from ottla.model.ids import Uuid
from ottla.protocol.generated.index import MODULES
from ottla.protocol.primitives import DecodeError, Message, Struct

NAMES = sorted(MODULES)
_RANGES = [
    (-(2**63), 2**63 - 1),
    (0, 2**32 - 1),
    (-(2**31), 2**31 - 1),
    (0, 2**16 - 1),
    (-(2**15), 2**15 - 1),
    (-128, 127),
]


_PLAIN = {float: 9.5, str: "text", bytes: b"bytes", Uuid: Uuid(b"0123456789abcdef"), Any: b"records"}


class Kind(NamedTuple):
    """What a field holds: `base` is int, bool, float, str, bytes, Uuid, Any (records) or a Struct."""

    base: Any
    is_list: bool
    nullable: bool


@cache
def message_class(name: str) -> type[Message]:
    found: type[Message] = getattr(module_of(name), name)
    return found


@cache
def module_of(name: str) -> ModuleType:
    return import_module(f"ottla.protocol.generated.{MODULES[name]}")


def versions(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


@cache
def kinds(cls: type[Struct]) -> dict[str, Kind]:
    hints = typing.get_type_hints(cls)
    return {name: _kind(hints[name]) for name in cls.__slots__}


def _kind(hint: Any) -> Kind:
    nullable = isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union
    if nullable:
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
    if typing.get_origin(hint) is list:
        return Kind(typing.get_args(hint)[0], is_list=True, nullable=nullable)
    return Kind(hint, is_list=False, nullable=nullable)


def is_struct(base: Any) -> bool:
    return isinstance(base, type) and issubclass(base, Struct)


def filled(cls: type[Struct], integers: dict[str, int] | None = None) -> Any:
    """An instance with no None and no default in it, one element in each list, integers as told or narrow ones."""
    values = {}
    for name, kind in kinds(cls).items():
        if is_struct(kind.base):
            value = filled(kind.base, integers)
        elif kind.base is bool:
            value = getattr(cls(), name) is not True
        elif kind.base is int:
            value = (integers or {}).get(f"{cls.__name__}.{name}", 99)
        else:
            value = _PLAIN[kind.base]
        values[name] = [value] if kind.is_list else value
    return cls(**values)


@cache
def integer_ranges(cls: type[Message]) -> dict[str, tuple[int, int]]:
    """`Struct.field` -> the values that all versions can write."""
    fields = dict(_integer_fields(cls))
    return {field: next(r for r in _RANGES if _fits(cls, field, r)) for field in fields}


def _integer_fields(cls: type[Struct]) -> Iterator[tuple[str, Kind]]:
    for name, kind in kinds(cls).items():
        if kind.base is int:
            yield f"{cls.__name__}.{name}", kind
        elif is_struct(kind.base):
            yield from _integer_fields(kind.base)


def _fits(cls: type[Message], field: str, bounds: tuple[int, int]) -> bool:
    for bound in bounds:
        message = filled(cls, {field: bound})
        for version in versions(cls):
            try:
                message.to_bytes(version)
            except struct.error:
                return False
    return True


TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", "x" * 127, "ü" * 70, "a" * 300])
BYTES = st.binary(max_size=12) | st.sampled_from([bytes(126), bytes(127), bytes(128), bytes(20_000)])
UUIDS = st.sampled_from([bytes(16), bytes(15) + b"\1"]) | st.binary(min_size=16, max_size=16)
_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    str: TEXT,
    bytes: BYTES,
    Any: BYTES,
    Uuid: UUIDS,
}


@cache
def strategy(cls: type[Message], *, nulls: bool) -> st.SearchStrategy[Message]:
    """Any value of the message; without `nulls`, one that every version can write."""
    return _struct_strategy(cls, cls, nulls)


def _struct_strategy(root: type[Message], cls: type[Struct], nulls: bool) -> st.SearchStrategy[Any]:
    fields = {}
    for name, kind in kinds(cls).items():
        if is_struct(kind.base):
            found = _struct_strategy(root, kind.base, nulls)
        elif kind.base is int:
            found = st.integers(*integer_ranges(root)[f"{cls.__name__}.{name}"])
        else:
            found = _LEAVES[kind.base]
        if kind.is_list:
            found = st.lists(found, max_size=2 if is_struct(kind.base) else 3)
        elif kind.base is not Any and not is_struct(kind.base):
            found |= st.just(getattr(cls(), name)) if getattr(cls(), name) is not None else found
        if nulls and (kind.nullable or kind.base is Any):
            found |= st.none()
        fields[name] = found
    return st.builds(cls, **fields)


@cache
def presence(cls: type[Message], version: int) -> frozenset[str]:
    """The paths (`topics.partitions.offset`) that this version carries, found by writing and reading a full message."""
    message = filled(cls)
    decoded, _ = cls.decode(message.to_bytes(version), 0, version)
    return frozenset(_carried(message, decoded, ""))


def _carried(sent: Struct, got: Struct, prefix: str) -> Iterator[str]:
    default = type(sent)()
    for name, kind in kinds(type(sent)).items():
        a, b = getattr(sent, name), getattr(got, name)
        if b == getattr(default, name):
            continue
        yield prefix + name
        if is_struct(kind.base):
            yield from _carried(a[0] if kind.is_list else a, b[0] if kind.is_list else b, f"{prefix}{name}.")


def expected(message: Struct, paths: frozenset[str], prefix: str = "") -> Struct:
    """What must come back from a version that carries `paths`: their values, and defaults for the rest."""
    result = type(message)()
    for name, kind in kinds(type(message)).items():
        if prefix + name not in paths:
            continue
        value = getattr(message, name)
        if is_struct(kind.base) and value is not None:
            inner = f"{prefix}{name}."
            value = [expected(v, paths, inner) for v in value] if kind.is_list else expected(value, paths, inner)
        setattr(result, name, value)
    return result


def encoded_or_none(message: Message, version: int) -> bytes | None:
    """The bytes, or None where this version has no null for a field that is None."""
    try:
        return message.to_bytes(version)
    except DecodeError as error:
        if "was serialized as null" not in str(error):
            raise
        return None


def random_message(random: Random, cls: type[Message], version: int, *, nulls: bool) -> Message:
    """Without Hypothesis, where thousands of values are wanted at once: a value that `version` can write."""
    while True:
        message = _random_struct(random, cls, cls, nulls)
        if encoded_or_none(message, version) is not None:
            return message


def _random_struct(random: Random, root: type[Message], cls: type[Struct], nulls: bool) -> Any:
    values = {}
    for name, kind in kinds(cls).items():
        if nulls and (kind.nullable or kind.base is Any) and random.random() < 0.2:
            values[name] = None
        elif random.random() < 0.2:
            values[name] = getattr(cls(), name)
            if values[name] is None and not nulls:
                values[name] = _random_field(random, root, cls, name, kind, nulls)
        else:
            values[name] = _random_field(random, root, cls, name, kind, nulls)
    return cls(**values)


def _random_field(random: Random, root: type[Message], cls: type[Struct], name: str, kind: Kind, nulls: bool) -> Any:
    def one() -> Any:
        if is_struct(kind.base):
            return _random_struct(random, root, kind.base, nulls)
        if kind.base is int:
            low, high = integer_ranges(root)[f"{cls.__name__}.{name}"]
            return random.choice([low, high, random.randint(low, high), max(low, random.randint(-2, 300) % (high + 1))])
        return _RANDOM_LEAVES[kind.base](random)

    return [one() for _ in range(random.choice([0, 1, 1, 2]))] if kind.is_list else one()


def _random_text(random: Random) -> str:
    return "".join(random.choice("abcXYZ019._-\u00fc\u20ac\U0001f600") for _ in range(random.choice([0, 1, 5, 9, 130])))


def _random_bytes(random: Random) -> bytes:
    return random.randbytes(random.choice([0, 1, 7, 130]))


_RANDOM_LEAVES: dict[Any, Any] = {
    bool: lambda random: random.random() < 0.5,
    float: lambda random: random.choice([0.0, -1.5, random.uniform(-1e9, 1e9)]),
    str: _random_text,
    bytes: _random_bytes,
    Any: _random_bytes,
    Uuid: lambda random: Uuid(random.randbytes(16)),
}
