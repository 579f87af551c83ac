"""Files that every Protobuf schema may import without a reference: Google's own, its common types, and Confluent's three."""

from __future__ import annotations

import importlib

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.registry.schemas.proto_google_type import GOOGLE_TYPES
from ottla.registry.schemas.proto_parser import parse_proto
from ottla.registry.schemas.proto_tree import ProtoFile

_GOOGLE = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip
_META = "".join(
    f"extend google.protobuf.{target}Options {{ Meta {name}_meta = 1088; }}\n"
    for target, name in (("File", "file"), ("Message", "message"), ("Field", "field"), ("Enum", "enum"),
                         ("EnumValue", "enum_value"))
)  # fmt: skip
_TEXTS = {
    **GOOGLE_TYPES,
    "confluent/type/variant.proto": (
        'syntax = "proto3"; package confluent.type; message Variant { bytes metadata = 1; bytes value = 2; }'
    ),
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type;'
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "confluent/meta.proto": (
        'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";'
        f"message Meta {{ string doc = 1; map<string, string> params = 2; repeated string tags = 3; }} {_META}"
    ),
}


def well_known_descriptor(path: str) -> FileDescriptorProto | None:
    """One of Google's own files, as the protobuf package has it."""
    name = path.removeprefix("google/protobuf/").removesuffix(".proto")
    if path != f"google/protobuf/{name}.proto" or name not in _GOOGLE:
        return None
    module = descriptor_pb2 if name == "descriptor" else importlib.import_module(f"google.protobuf.{name}_pb2")
    proto = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(proto)
    return proto


def well_known_tree(path: str) -> ProtoFile | None:
    """One of Google's common types or of Confluent's files."""
    text = _TEXTS.get(path)
    return None if text is None else parse_proto(text)
