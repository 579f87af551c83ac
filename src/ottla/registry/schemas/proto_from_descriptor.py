"""A FileDescriptorProto as a .proto tree: what Python's serializer registers, made readable."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from ottla.registry.schemas.proto_descriptor import json_name as default_json_name
from ottla.registry.schemas.proto_options import get_options
from ottla.registry.schemas.proto_tree import (
    Enum,
    EnumValue,
    Extend,
    Field,
    Import,
    Method,
    ProtoFile,
    ProtoMessage,
    ProtoOption,
    Service,
)

_MAX = 536_870_912


def to_tree(proto: FileDescriptorProto) -> ProtoFile:
    public = set(proto.public_dependency)
    edition = Edition.Name(proto.edition).removeprefix("EDITION_") if proto.syntax == "editions" else ""
    proto3 = proto.syntax == "proto3"
    return ProtoFile(
        syntax=proto.syntax or "proto2",
        edition=edition,
        package=proto.package,
        imports=[Import(path, "public" if at in public else "") for at, path in enumerate(proto.dependency)],
        options=get_options(proto.options),
        messages=[_message(message, proto3=proto3) for message in proto.message_type],
        enums=[_enum(enum) for enum in proto.enum_type],
        extends=_extends(proto.extension, proto3=proto3),
        services=[_service(service) for service in proto.service],
    )


def _message(proto: DescriptorProto, *, proto3: bool) -> ProtoMessage:
    entries = {entry.name: entry for entry in proto.nested_type if entry.options.map_entry}
    synthetic = {field_proto.oneof_index for field_proto in proto.field if field_proto.proto3_optional}
    message = ProtoMessage(proto.name, options=get_options(proto.options))
    for index, oneof in enumerate(proto.oneof_decl):
        if index not in synthetic:
            message.oneofs[oneof.name] = []
    for field_proto in proto.field:
        field = _map_field(field_proto, entries) or _field(field_proto, proto3=proto3)
        if field_proto.HasField("oneof_index") and not field_proto.proto3_optional:
            field.oneof = proto.oneof_decl[field_proto.oneof_index].name
            field.label = ""
        message.fields.append(field)
    groups = {
        field_proto.type_name.rpartition(".")[2]
        for field_proto in proto.field
        if field_proto.type == FieldDescriptorProto.TYPE_GROUP
    }
    for inner in proto.nested_type:
        if not inner.options.map_entry:
            tree = _message(inner, proto3=proto3)
            tree.is_group = inner.name in groups
            message.messages.append(tree)
    message.enums = [_enum(enum) for enum in proto.enum_type]
    message.extends = _extends(proto.extension, proto3=proto3)
    message.extensions = [_range(number_range.start, number_range.end) for number_range in proto.extension_range]
    message.reserved = [_range(number_range.start, number_range.end) for number_range in proto.reserved_range]
    message.reserved += [f'"{name}"' for name in proto.reserved_name]
    return message


def _range(start: int, end: int) -> str:
    if end == _MAX:
        return f"{start} to max"
    return str(start) if end == start + 1 else f"{start} to {end - 1}"


def _type(proto: FieldDescriptorProto) -> str:
    if proto.type_name:
        group = proto.type == FieldDescriptorProto.TYPE_GROUP
        return str(proto.type_name.rpartition(".")[2] if group else proto.type_name)
    return str(FieldDescriptorProto.Type.Name(proto.type)).removeprefix("TYPE_").lower()


def _field(proto: FieldDescriptorProto, *, proto3: bool) -> Field:
    label = {FieldDescriptorProto.LABEL_REQUIRED: "required", FieldDescriptorProto.LABEL_REPEATED: "repeated"}.get(
        proto.label, "optional" if proto.proto3_optional or not proto3 else ""
    )
    return Field(proto.name, proto.number, _type(proto), label, _field_options(proto))


def _field_options(proto: FieldDescriptorProto) -> list[ProtoOption]:
    options = get_options(proto.options)
    if proto.HasField("default_value"):
        quoted = proto.type in {FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES}
        options.append(ProtoOption("default", f'"{proto.default_value}"' if quoted else proto.default_value))
    if proto.HasField("json_name") and proto.json_name != default_json_name(proto.name):
        options.append(ProtoOption("json_name", f'"{proto.json_name}"'))
    return options


def _map_field(proto: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> Field | None:
    entry = entries.get(proto.type_name.rpartition(".")[2])
    if entry is None or proto.label != FieldDescriptorProto.LABEL_REPEATED:
        return None
    key, value = entry.field[0], entry.field[1]
    return Field(proto.name, proto.number, "map", "", _field_options(proto), None, _type(key), _type(value))


def _enum(proto: EnumDescriptorProto) -> Enum:
    values = [EnumValue(value.name, value.number, get_options(value.options)) for value in proto.value]
    reserved = [_range(number_range.start, number_range.end + 1) for number_range in proto.reserved_range]
    return Enum(
        proto.name, values, get_options(proto.options), reserved + [f'"{name}"' for name in proto.reserved_name]
    )


def _extends(extensions: Any, *, proto3: bool) -> list[Extend]:
    extends: dict[str, Extend] = {}
    for extension in extensions:
        extends.setdefault(extension.extendee, Extend(extension.extendee)).fields.append(
            _field(extension, proto3=proto3)
        )
    return list(extends.values())


def _service(proto: Any) -> Service:
    methods = [
        Method(method.name, method.input_type, method.output_type, method.client_streaming, method.server_streaming,
               get_options(method.options))
        for method in proto.method
    ]  # fmt: skip
    return Service(proto.name, methods, get_options(proto.options))
