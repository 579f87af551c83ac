"""A .proto tree as the FileDescriptorProto that protobuf's own runtime works with; every name is resolved here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from ottla.registry.schemas.parsed import SchemaProblem
from ottla.registry.schemas.proto_names import Types, is_scalar, resolve
from ottla.registry.schemas.proto_options import set_options
from ottla.registry.schemas.proto_tree import Enum, Extend, Field, ProtoFile, ProtoMessage, Service

_MAX = 536_870_912
_LABELS = {
    "": FieldDescriptorProto.LABEL_OPTIONAL,
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def to_descriptor(file: ProtoFile, name: str, types: Types) -> FileDescriptorProto:
    return _Conversion(file, types).run(name)


class _Conversion:
    def __init__(self, file: ProtoFile, types: Types) -> None:
        self._file = file
        self._types = types

    def run(self, name: str) -> FileDescriptorProto:
        file = self._file
        proto = FileDescriptorProto(name=name, package=file.package)
        if file.syntax == "proto3":
            proto.syntax = "proto3"
        elif file.edition:
            proto.syntax = "editions"
            proto.edition = _edition(file.edition)
        for index, imported in enumerate(file.imports):
            proto.dependency.append(imported.path)
            if imported.kind == "public":
                proto.public_dependency.append(index)
        set_options(proto.options, file.options)
        for message in file.messages:
            self._message(message, proto.message_type.add(), file.package)
        for enum in file.enums:
            _enum(enum, proto.enum_type.add())
        self._extends(file.extends, proto.extension, file.package)
        for service in file.services:
            self._service(service, proto.service.add())
        return proto

    def _message(self, message: ProtoMessage, proto: DescriptorProto, scope: str) -> None:
        own = f"{scope}.{message.name}" if scope else message.name
        proto.name = message.name
        set_options(proto.options, message.options)
        _check_unique(message, own)
        oneofs = {name: index for index, name in enumerate(message.oneofs)}
        for name in oneofs:
            proto.oneof_decl.add(name=name)
        for field in message.fields:
            added = proto.field.add()
            if field.is_map:
                self._map(field, added, proto, own)
            else:
                self._field(field, added, own)
            if field.oneof is not None:
                added.oneof_index = oneofs[field.oneof]
        self._synthetic_oneofs(message, proto)
        for inner in message.messages:
            self._message(inner, proto.nested_type.add(), own)
        for enum in message.enums:
            _enum(enum, proto.enum_type.add())
        self._extends(message.extends, proto.extension, own)
        for text in message.extensions:
            start, end = _range(text)
            proto.extension_range.add(start=start, end=end)
        for text in message.reserved:
            if text.startswith('"'):
                proto.reserved_name.append(text.strip('"'))
            else:
                start, end = _range(text)
                proto.reserved_range.add(start=start, end=end)

    def _synthetic_oneofs(self, message: ProtoMessage, proto: DescriptorProto) -> None:
        """proto3's optional is a oneof of one member, after the real ones."""
        if self._file.syntax != "proto3":
            return
        for field, added in zip(message.fields, proto.field, strict=True):
            if field.label == "optional" and field.oneof is None:
                added.proto3_optional = True
                added.oneof_index = len(proto.oneof_decl)
                proto.oneof_decl.add(name=f"_{field.name}")

    def _field(self, field: Field, proto: FieldDescriptorProto, scope: str) -> None:
        proto.name, proto.number, proto.label = field.name, field.number, _LABELS[field.label]
        self._type(field.type, proto, scope)
        proto.json_name = json_name(field.name)
        set_options(proto.options, [o for o in field.options if o.name not in {"default", "json_name"}])
        for option in field.options:
            if option.name == "json_name":
                proto.json_name = option.value.strip('"')
            elif option.name == "default":
                proto.default_value = option.value.strip('"')

    def _type(self, name: str, proto: FieldDescriptorProto, scope: str) -> None:
        if is_scalar(name):
            proto.type = FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
            return
        full = resolve(name, scope, self._types)
        named_type = self._types[full]
        proto.type_name = f".{full}"
        if isinstance(named_type, Enum):
            proto.type = FieldDescriptorProto.TYPE_ENUM
        else:
            proto.type = FieldDescriptorProto.TYPE_GROUP if named_type.is_group else FieldDescriptorProto.TYPE_MESSAGE

    def _map(self, field: Field, proto: FieldDescriptorProto, message: DescriptorProto, scope: str) -> None:
        """map<K, V> name is a repeated message NameEntry with a key and a value."""
        entry_name = "".join(_camel_parts(field.name)) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        self._field(Field("key", 1, field.key_type), entry.field.add(), scope)
        self._field(Field("value", 2, field.value_type), entry.field.add(), scope)
        proto.name, proto.number, proto.label = field.name, field.number, FieldDescriptorProto.LABEL_REPEATED
        proto.type, proto.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{scope}.{entry_name}"
        proto.json_name = json_name(field.name)
        set_options(proto.options, [o for o in field.options if o.name != "json_name"])

    def _extends(self, extends: Iterable[Extend], into: Any, scope: str) -> None:
        for extend in extends:
            target = resolve(extend.target, scope, self._types)
            for field in extend.fields:
                added = into.add()
                self._field(field, added, scope)
                added.extendee = f".{target}"

    def _service(self, service: Service, proto: Any) -> None:
        proto.name = service.name
        set_options(proto.options, service.options)
        for method in service.methods:
            added = proto.method.add(name=method.name)
            added.input_type = f".{resolve(method.input, self._file.package, self._types)}"
            added.output_type = f".{resolve(method.output, self._file.package, self._types)}"
            if method.client_streaming:
                added.client_streaming = True
            if method.server_streaming:
                added.server_streaming = True
            set_options(added.options, method.options)


def _enum(enum: Enum, proto: EnumDescriptorProto) -> None:
    proto.name = enum.name
    set_options(proto.options, enum.options)
    for value in enum.values:
        added = proto.value.add(name=value.name, number=value.number)
        set_options(added.options, value.options)
    for text in enum.reserved:
        if text.startswith('"'):
            proto.reserved_name.append(text.strip('"'))
        else:
            start, end = _range(text)
            proto.reserved_range.add(start=start, end=end - 1)


def _check_unique(message: ProtoMessage, name: str) -> None:
    numbers: dict[int, str] = {}
    names: set[str] = set()
    for field in message.fields:
        if field.number in numbers:
            field_names = f"{numbers[field.number]} and {field.name}"
            raise SchemaProblem(f"the number {field.number} is used twice in {name}: {field_names}")
        if field.name in names:
            raise SchemaProblem(f"the field {field.name} is defined twice in {name}")
        numbers[field.number] = field.name
        names.add(field.name)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(" to ")
    end = _MAX if last == "max" else int(last or first) + 1
    return int(first), end


def _edition(text: str) -> Any:
    from google.protobuf.descriptor_pb2 import Edition

    try:
        return Edition.Value(f"EDITION_{text}")
    except ValueError as error:
        raise SchemaProblem(f"the edition {text!r} is not known") from error


def _camel_parts(name: str) -> list[str]:
    """Protobuf's rule for the entry of a map: underscores go, the letter after one is a capital."""
    return [part[:1].upper() + part[1:] if part else "" for part in name.split("_")]


def json_name(name: str) -> str:
    first, *later_parts = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in later_parts)
