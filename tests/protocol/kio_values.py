"""kio's entities beside our messages: the classes they share, random kio values, and both in one plain form."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import typing
import uuid
from collections.abc import Iterator
from pkgutil import resolve_name
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.protocol.message_values import kinds

from ottla.protocol.generated.index import MODULES
from ottla.protocol.primitives import Struct

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
_SUFFIX = {EntityType.request: "_request", EntityType.response: "_response"}
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def shared() -> dict[tuple[str, int], str]:
    """(our class, version) -> the path of kio's entity, for everything that kio knows under one of our names."""
    ours = {module: name for name, module in MODULES.items()}
    found = {}
    for name, by_version in schema_name_map.items():
        for version, by_type in by_version.items():
            for kind, path in by_type.items():
                module = name if kind in (EntityType.header, EntityType.data) else name + _SUFFIX[kind]
                if module in ours:
                    found[ours[module], version] = path
    return found


def entity_class(path: str) -> Any:
    return resolve_name(path)


def encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(cls: Any, raw: bytes) -> tuple[Any, int]:
    entity, size = entity_reader(cls)(raw, 0)
    return entity, size


def _fields(cls: Any) -> Iterator[tuple[str, Any, str | None, bool, bool]]:
    """Each field: name, entity class or None, kafka type, whether it is an array, whether it may be None."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        hint, nullable, is_array = hints[field.name], False, False
        args = typing.get_args(hint)
        if type(None) in args:
            nullable = True
            (hint,) = (arg for arg in args if arg is not type(None))
        if typing.get_origin(hint) is tuple:
            is_array, hint = True, typing.get_args(hint)[0]
            if type(None) in typing.get_args(hint):
                (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
        yield (
            field.name,
            hint if dataclasses.is_dataclass(hint) else None,
            field.metadata.get("kafka_type"),
            is_array,
            nullable,
        )


def random_entity(random: Random, cls: Any) -> Any:
    values = {}
    for name, entity, kafka_type, is_array, nullable in _fields(cls):
        if nullable and random.random() < 0.25:
            values[name] = None
            continue
        count = random.choice([0, 1, 2]) if is_array else 1
        items = tuple(random_entity(random, entity) if entity else _leaf(random, kafka_type) for _ in range(count))
        values[name] = items if is_array else items[0]
    return cls(**values)


def _leaf(random: Random, kafka_type: str | None) -> Any:
    match kafka_type:
        case "int8" | "int16" | "int32" | "int64":
            high = 2 ** (_BITS[kafka_type] - 1)
            return random.choice([-high, high - 1, 0, -1, random.randint(-high, high - 1)])
        case "uint16":
            return random.choice([0, 65535, random.randint(0, 65535)])
        case "timedelta_i32" | "timedelta_i64":
            return random.choice([-1, 0, 2**31 - 1, random.randint(0, 10**9)]) * _MILLISECOND
        case "datetime_i64":
            return _EPOCH + random.randint(0, 4 * 10**12) * _MILLISECOND
        case "error_code":
            return random.choice(list(ErrorCode))
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "string":
            return "".join(random.choice("abc-._\u00fc\u20ac") for _ in range(random.choice([0, 3, 130])))
        case "bytes" | "records":
            return random.randbytes(random.choice([0, 5, 130]))
        case "uuid":
            return uuid.UUID(bytes=random.randbytes(16))
    raise ValueError(f"kio type {kafka_type}")


def _key(name: str) -> str:
    """kio has its own way with underscores and drops the unit where the type says it."""
    return name.removesuffix("_ms").replace("_", "")


def plain_kio(entity: Any) -> dict[str, Any]:
    """Field -> value: numbers for times and error codes, bytes for uuids, lists for tuples."""
    result = {}
    for name, _, kafka_type, is_array, _ in _fields(type(entity)):
        value = getattr(entity, name)
        if is_array:
            result[_key(name)] = None if value is None else [_plain(item, kafka_type) for item in value]
        else:
            result[_key(name)] = _plain(value, kafka_type)
    return result


def _plain(value: Any, kafka_type: str | None) -> Any:
    if dataclasses.is_dataclass(value):
        return plain_kio(value)
    if kafka_type == "uuid":
        return bytes(16) if value is None else value.bytes
    if kafka_type == "datetime_i64":
        return -1 if value is None else (value - _EPOCH) // _MILLISECOND
    if isinstance(value, dt.timedelta):
        return value // _MILLISECOND
    return value.value if isinstance(value, ErrorCode) else value


def plain_ours(message: Struct, carried: frozenset[str], prefix: str = "") -> dict[str, Any]:
    """The same of our message, without the fields that this version does not carry."""
    result = {}
    for name in kinds(type(message)):
        if prefix + name in carried:
            value = getattr(message, name)
            items = value if isinstance(value, list) else [value]
            plain = [plain_ours(i, carried, f"{prefix}{name}.") if isinstance(i, Struct) else i for i in items]
            result[_key(name)] = plain if isinstance(value, list) else plain[0]
    return result
