"""Protobuf messages in Confluent's framing: message indexes first, then the message; descriptors from the registry."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from ottla.console.errors import ConsoleError
from ottla.console.registry_client import ConsoleRegistry
from ottla.payloads.confluent import message_indexes


def decode_protobuf(registry: ConsoleRegistry, schema_id: int, schema: dict[str, Any], data: bytes) -> Any:
    from google.protobuf import json_format, message

    indexes, start = message_indexes(data)
    made = schema.get("messages")
    if made is None:
        made = schema["messages"] = _Messages(registry, schema_id, schema)
    try:
        decoded = made.at(indexes).FromString(data[start:])
        return json_format.MessageToDict(decoded, preserving_proto_field_name=True)
    except (message.DecodeError, json_format.Error) as error:
        raise ConsoleError(f"not a message of schema {schema_id}: {error}") from error


class _Messages:
    """The message classes of one schema; references become files of the same pool."""

    def __init__(self, registry: ConsoleRegistry, schema_id: int, schema: dict[str, Any]) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf import any_pb2, api_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2  # fmt: skip # isort: skip

        self._pool = descriptor_pool.DescriptorPool()
        for module in (any_pb2, source_context_pb2, type_pb2, api_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2, descriptor_pb2):  # fmt: skip
            self._pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        self._add_references(registry, schema.get("references") or [], set())
        self._file = self._add(registry.serialized(schema_id), f"schema-{schema_id}.proto")

    def _add_references(self, registry: ConsoleRegistry, references: list[dict[str, Any]], seen: set[str]) -> None:
        for reference in references:
            name = str(reference["name"])
            if name in seen or name.startswith("google/protobuf/"):
                continue
            seen.add(name)
            target = registry.version(str(reference["subject"]), int(reference["version"]))
            self._add_references(registry, target.get("references") or [], seen)
            self._add(registry.serialized(int(target["id"])), name)

    def _add(self, serialized: str, name: str) -> str:
        from google.protobuf import descriptor_pb2

        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized, validate=True))
        except ValueError as error:
            raise ConsoleError("the registry does not give Protobuf schemas in serialized form") from error
        file.name = name
        self._pool.Add(file)
        return name

    def at(self, indexes: Sequence[int]) -> Any:
        from google.protobuf import message_factory

        file = self._pool.FindFileByName(self._file)
        types = list(file.message_types_by_name.values())
        message_type = types[indexes[0]]
        for index in indexes[1:]:
            message_type = list(message_type.nested_types)[index]
        return message_factory.GetMessageClass(message_type)
