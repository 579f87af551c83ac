"""The message that a writer's registered schema names, compared with the generated class that reads the message.

Confluent's framing names the schema of a file and a path of indexes to the message. Protobuf itself reads any bytes: a
field of another type is unknown and silently missing. So the writer's message is compared once for each schema.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client.schema_registry import protobuf_file
from ottla.model.user_error import UserError
from ottla.pipelines.protobuf import message_class

_WIRE = {
    1: "double", 2: "float", 3: "integer", 4: "integer", 5: "integer", 6: "fixed64", 7: "fixed32", 8: "integer", 9: "text",
    10: "group", 11: "message", 12: "text", 13: "integer", 14: "integer", 15: "fixed32", 16: "fixed64", 17: "zigzag",
    18: "zigzag",
}  # fmt: skip
"""Types that read each other's bytes, by the numbers of descriptor.proto's FieldDescriptorProto.Type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredMessage:
    """A writer's message. `problem` is why the class cannot read the message; `added` names fields without a column."""

    problem: str
    added: tuple[str, ...] = ()


def local_name(descriptor: Any) -> str:
    """The name inside its file: Confluent's rules allow that a package changes."""
    return str(descriptor.full_name.removeprefix(f"{descriptor.file.package}."))


@functools.lru_cache(maxsize=1000)
def written_message(registry: str, schema_id: int, indexes: tuple[int, ...], name: str) -> RegisteredMessage:
    file = _file(registry, schema_id)
    ours = message_class(name).DESCRIPTOR
    messages: Any = file.message_type
    path: list[str] = []
    message: Any = None
    for index in indexes:
        if index >= len(messages):
            return RegisteredMessage(problem=f"the schema {schema_id} has no message at the indexes {list(indexes)}")
        message = messages[index]
        path.append(message.name)
        messages = message.nested_type
    if ".".join(path) != local_name(ours):
        return RegisteredMessage(
            problem=f"the record holds the message {'.'.join(path)} of the schema {schema_id}, not {local_name(ours)}"
        )
    added: list[str] = []
    return RegisteredMessage(problem=_compared(message, ours, added), added=tuple(added))


def _compared(theirs: Any, ours: Any, added: list[str]) -> str:
    for field in theirs.field:
        mine = ours.fields_by_number.get(field.number)
        if mine is None:
            added.append(field.name)
        elif _WIRE[field.type] != _WIRE[mine.type]:
            return f"the writer's field {field.name} ({field.number}) cannot be read as {mine.full_name}"
    return ""


def message_indexes_of(registry: str, schema_id: int, name: str) -> tuple[int, ...]:
    """Where a registered schema has the message of a class. Raises UserError if the schema does not have the message."""
    parts = local_name(message_class(name).DESCRIPTOR).split(".")
    indexes: list[int] = []
    messages: Sequence[Any] = _file(registry, schema_id).message_type
    for part in parts:
        names = [message.name for message in messages]
        if part not in names:
            raise UserError(f"the schema {schema_id} of {registry} has no message {'.'.join(parts)}")
        indexes.append(names.index(part))
        messages = messages[indexes[-1]].nested_type
    return tuple(indexes)


def _file(registry: str, schema_id: int) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto.FromString(protobuf_file(registry, schema_id))
