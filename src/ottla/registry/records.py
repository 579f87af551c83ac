"""The records of the `_schemas` topic, as Confluent writes them: JSON keys and values, one per fact.

- `{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}`: a version; the value null deletes the version permanently.
- `{"keytype":"CONFIG","subject":"s","magic":0}`: the compatibility of a subject; without subject, of all subjects.
- `{"keytype":"MODE","subject":"s","magic":0}`: the mode of a subject; without subject, of all subjects.
- `{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}`: soft deletes all versions up to the version in the value.
- `{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}`: forgets the soft-deleted versions.
- `{"keytype":"NOOP","magic":0}`: changes nothing. Its value, which Confluent ignores, keeps the largest id of each
  context past a permanent delete.
"""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA = "SCHEMA"
CONFIG = "CONFIG"
MODE = "MODE"
DELETE_SUBJECT = "DELETE_SUBJECT"
CLEAR_SUBJECT = "CLEAR_SUBJECT"
NOOP = "NOOP"

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
SCHEMA_TYPES = (JSON, PROTOBUF, AVRO)

JsonObject = dict[str, Any]
MAX_INT = (1 << 31) - 1
"""Ids travel in four bytes, and so do versions in Java's clients."""


class SchemaReference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields in Confluent's order; a null subject is left out."""

    keytype: str
    subject: str | None = None
    version: int | None = None
    magic: int = -1


class SchemaValue(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One version of one subject."""

    subject: str
    version: int
    id: int
    deleted: bool
    schema_type: str = AVRO
    references: tuple[SchemaReference, ...] = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None
    schema: str = ""

    def optional_fields(self) -> JsonObject:
        """The fields that a record or an answer leaves out when they have their defaults."""
        fields: JsonObject = {}
        if self.schema_type != AVRO:
            fields["schemaType"] = self.schema_type
        if self.references:
            fields["references"] = self.references
        if self.metadata is not None:
            fields["metadata"] = self.metadata
        if self.rule_set is not None:
            fields["ruleSet"] = self.rule_set
        return fields

    def as_deleted(self) -> SchemaValue:
        return msgspec.structs.replace(self, deleted=True)


class DeleteSubjectValue(msgspec.Struct):
    subject: str
    version: int


class IdsValue(msgspec.Struct, rename="camel"):
    """The value of NOOP: the largest id given in each context."""

    max_ids: dict[str, int]


Record = tuple[bytes, bytes | None]

_encoder = msgspec.json.Encoder()
_key_decoder = msgspec.json.Decoder(Key)
_schema_decoder = msgspec.json.Decoder(SchemaValue)
_delete_decoder = msgspec.json.Decoder(DeleteSubjectValue)
_ids_decoder = msgspec.json.Decoder(IdsValue)
_object_decoder = msgspec.json.Decoder(dict[str, Any])


def decode_key(data: bytes) -> Key:
    """msgspec.DecodeError (or ValidationError) when it is no key of ours."""
    return _key_decoder.decode(data)


def decode_schema(data: bytes) -> SchemaValue:
    return _schema_decoder.decode(data)


def decode_delete(data: bytes) -> DeleteSubjectValue:
    return _delete_decoder.decode(data)


def decode_ids(data: bytes) -> IdsValue:
    return _ids_decoder.decode(data)


def decode_object(data: bytes) -> JsonObject:
    return _object_decoder.decode(data)


def schema_key(subject: str, version: int) -> bytes:
    return _encoder.encode(Key(SCHEMA, subject, version, 1))


def schema_record(value: SchemaValue) -> Record:
    fields: JsonObject = {"subject": value.subject, "version": value.version, "id": value.id}
    fields |= value.optional_fields()
    fields["schema"] = value.schema
    fields["deleted"] = value.deleted
    return schema_key(value.subject, value.version), _encoder.encode(fields)


def schema_tombstone(subject: str, version: int) -> Record:
    return schema_key(subject, version), None


def config_record(subject: str | None, config: JsonObject | None) -> Record:
    value = None if config is None else _encoder.encode({**({"subject": subject} if subject else {}), **config})
    return _encoder.encode(Key(CONFIG, subject, None, 0)), value


def mode_record(subject: str | None, mode: str | None) -> Record:
    value = None if mode is None else _encoder.encode({**({"subject": subject} if subject else {}), "mode": mode})
    return _encoder.encode(Key(MODE, subject, None, 0)), value


def delete_subject_record(subject: str, version: int) -> Record:
    key = _encoder.encode(Key(DELETE_SUBJECT, subject, None, 0))
    return key, _encoder.encode(DeleteSubjectValue(subject, version))


def delete_subject_tombstone(subject: str) -> Record:
    return _encoder.encode(Key(DELETE_SUBJECT, subject, None, 0)), None


def ids_record(max_ids: dict[str, int]) -> Record:
    return _encoder.encode(Key(NOOP, None, None, 0)), _encoder.encode(IdsValue(max_ids))
