"""The largest requests of every API: one array of the request filled to the brim, its elements all alike or all different.

Built from the generated classes, so that an API that is added later is there too.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.model.ids import Uuid
from ottla.protocol.api import encode_request, request_class
from ottla.protocol.generated.index import APIS
from ottla.protocol.primitives import Message

TOPIC = "topic"
GROUP = "group"
_TOPIC_FIELDS = {"topic", "topic_name", "name", "topics", "topic_names", "subscribed_topic_names"}
_BYTES = {"operation", "config_operation", "mechanism", "match_type", "state"}


class LargeRequest(NamedTuple):
    api_key: int
    version: int
    label: str
    frame: bytes
    """With its length, ready to be sent."""


def largest_requests(api_key: int, count: int, topic_id: Uuid) -> Iterator[LargeRequest]:
    """One for each array that a request of the latest version can hold, with `count` elements in that array."""
    version = request_class(api_key).MAX_VERSION
    for path in _array_paths(request_class(api_key)):
        for kind in ("alike", "different"):
            request = _filled(request_class(api_key), path, count, kind, topic_id)
            try:
                frame = b"".join(bytes(piece) for piece in encode_request(request, version, 1, "large"))
            except (KeyError, TypeError, AttributeError, struct.error):
                continue  # an array of other versions
            yield LargeRequest(api_key, version, f"{APIS[api_key].name} {'.'.join(path)} {kind}", frame)


def _array_paths(cls: type[Any]) -> Iterator[tuple[str, ...]]:
    for field, element, is_array in _fields(cls):
        if is_array:
            yield (field,)
        if isinstance(element, type) and hasattr(element, "__slots__"):
            for rest in _array_paths(element):
                yield (field, *rest)


def _fields(cls: type[Any]) -> Iterator[tuple[str, Any, bool]]:
    """Name, element's class (or its name for a plain type) and whether it is an array."""
    names = vars(sys.modules[cls.__module__])
    for field in cls.__slots__:
        text = str(cls.__annotations__[field]).replace(" | None", "")
        is_array = text.startswith("list[")
        element = text.removeprefix("list[").removesuffix("]") if is_array else text
        yield field, names.get(element, element), is_array


def _filled(cls: type[Any], path: tuple[str, ...], count: int, kind: str, topic_id: Uuid, number: int = 0) -> Any:
    """An object in which the array at `path` has `count` elements, and those on the way to it one."""
    values: dict[str, Any] = {}
    for field, element, is_array in _fields(cls):
        if path and field == path[0]:
            times = count if len(path) == 1 else 1
            made = [
                _element(field, element, path[1:], count, kind, topic_id, index if kind == "different" else 0)
                for index in range(times if is_array else 1)
            ]
            values[field] = made if is_array else made[0]
        elif not is_array and isinstance(element, str):
            value = _plain(field, element, topic_id, number)
            if value is not None:
                values[field] = value
    return cls(**values)


def _element(field: str, element: Any, path: tuple[str, ...], count: int, kind: str, topic_id: Uuid, index: int) -> Any:
    if isinstance(element, str):
        return _plain(field, element, topic_id, index) if element in _PLAIN else b""
    return _filled(element, path, count, kind, topic_id, index)


def _text(field: str, number: int) -> str:
    name = TOPIC if field in _TOPIC_FIELDS else GROUP
    return f"{name}-{number}" if number else name


_PLAIN: dict[str, Callable[[str, Uuid, int], Any]] = {
    "str": lambda field, _topic_id, number: _text(field, number),
    "int": lambda field, _topic_id, number: number % 100 if field in _BYTES or "type" in field else number % 30_000,
    "Uuid": lambda _field, topic_id, number: Uuid(number.to_bytes(16, "big")) if number else topic_id,
}


def _plain(field: str, kind: str, topic_id: Uuid, number: int) -> Any:
    if field in ("session_id", "session_epoch", "replica_id", "generation_id", "generation_id_or_member_epoch"):
        return None
    if field in ("member_id", "transactional_id", "instance_id", "group_instance_id", "rack_id"):
        return None
    if field == "acks":
        return 1
    make = _PLAIN.get(kind)
    return None if make is None else make(field, topic_id, number)


def is_message(cls: type[Any]) -> bool:
    return issubclass(cls, Message)
