"""Options between text and descriptor: those that descriptor.proto names are set, others stay uninterpreted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import UninterpretedOption

from ottla.registry.schemas.parsed import SchemaProblem
from ottla.registry.schemas.proto_tree import ProtoOption

_INTEGERS = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32}


def set_options(into: Any, options: Iterable[ProtoOption]) -> None:
    for option in options:
        field = into.DESCRIPTOR.fields_by_name.get(option.name)
        if field is None or field.type == FieldDescriptor.TYPE_MESSAGE:
            into.uninterpreted_option.append(_uninterpreted(option))
            continue
        try:
            value = _value(option.value, field)
            if field.is_repeated:
                getattr(into, option.name).append(value)
            else:
                setattr(into, option.name, value)
        except (ValueError, TypeError, KeyError) as error:
            raise SchemaProblem(f"the option {option.name} cannot be {option.value}") from error


def _value(text: str, field: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"true": True, "false": False}[text]
    if field.type == FieldDescriptor.TYPE_STRING:
        return text.strip('"')
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values_by_name[text].number
    return int(text) if field.type in _INTEGERS else float(text)


def _uninterpreted(option: ProtoOption) -> UninterpretedOption:
    proto = UninterpretedOption()
    for part in re.findall(r"\([^)]*\)|[^.()]+", option.name):
        proto.name.add(name_part=part.strip("()"), is_extension=part.startswith("("))
    value = option.value
    if value.startswith("{"):
        proto.aggregate_value = value[1:-1].strip()
    elif value.startswith('"'):
        proto.string_value = value[1:-1].encode()
    elif re.fullmatch(r"\+?\d+", value):
        proto.positive_int_value = int(value)
    elif re.fullmatch(r"-\d+", value):
        proto.negative_int_value = int(value)
    elif re.fullmatch(r"[+-]?[\d.eE+-]+", value):
        proto.double_value = float(value)
    else:
        proto.identifier_value = value
    return proto


def get_options(options: Any) -> list[ProtoOption]:
    """What a descriptor has set, in the order of the field numbers; extensions that we do not know are left out."""
    option_list: list[ProtoOption] = []
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            option_list += [_text_of(uninterpreted) for uninterpreted in value]
        elif field.is_extension or field.type == FieldDescriptor.TYPE_MESSAGE or field.name == "map_entry":
            continue
        elif field.is_repeated:
            option_list += [ProtoOption(field.name, _text(element, field)) for element in value]
        else:
            option_list.append(ProtoOption(field.name, _text(value, field)))
    return option_list


def _text(value: Any, field: Any) -> str:
    if field.type == FieldDescriptor.TYPE_BOOL:
        return "true" if value else "false"
    if field.type == FieldDescriptor.TYPE_STRING:
        return f'"{value}"'
    if field.type == FieldDescriptor.TYPE_ENUM:
        return str(field.enum_type.values_by_number[value].name)
    return str(value)


def _text_of(proto: UninterpretedOption) -> ProtoOption:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in proto.name)
    for field, value in proto.ListFields():
        if isinstance(value, bytes) and field.name != "string_value":
            raise SchemaProblem(f"the option {name} is not UTF-8")
        if field.name == "aggregate_value":
            return ProtoOption(name, f"{{ {value} }}")
        if field.name == "string_value":
            return ProtoOption(name, f'"{value.decode()}"')
        if field.name != "name":
            return ProtoOption(name, str(value))
    return ProtoOption(name, '""')
