"""Whether a reader's Protobuf schema reads what a writer's wrote, rule by rule.

Fields are compared by number, types by their place in the file (a package must stay), scalars by their group on the
wire. Names are Confluent's; docs/registry-compatibility.md lists them. Enums may change freely: numbers travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.registry.schemas.budget import CHARACTERS_A_STEP, Budget
from ottla.registry.schemas.parsed import Incompatibility, SchemaProblem
from ottla.registry.schemas.proto_names import Types, is_scalar, resolve
from ottla.registry.schemas.proto_tree import Enum, Field, ProtoFile, ProtoMessage

_GROUPS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "a varint"),
    **dict.fromkeys(("sint32", "sint64"), "a zigzag varint"),
    **dict.fromkeys(("string", "bytes"), "a string or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "a fixed 32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "a fixed 64"),
    "float": "a float",
    "double": "a double",
}


MAX_FOUND = 100
"""At most this many reasons are listed; the first one already decides the verdict."""


class Resolved(NamedTuple):
    file: ProtoFile
    types: Types
    """Its own types and those of its imports, by full name."""
    packages: Mapping[str, str]
    """The package of the file that each of them is in."""


class _Kind(NamedTuple):
    shape: str
    """scalar, message or map"""
    detail: str


def incompatibilities(writer: Resolved, reader: Resolved, budget: Budget) -> list[Incompatibility]:
    return _Comparison(writer, reader, budget).run()


class _Comparison:
    def __init__(self, writer: Resolved, reader: Resolved, budget: Budget) -> None:
        self._writer, self._reader = writer, reader
        self._budget = budget
        self._seen: set[tuple[str, str]] = set()
        self.reasons: list[Incompatibility] = []

    def add(self, kind: str, path: str, message: str) -> None:
        if len(self.reasons) < MAX_FOUND:
            self.reasons.append(Incompatibility(kind, path[:500], message[:500]))

    def run(self) -> list[Incompatibility]:
        old, new = self._writer.file, self._reader.file
        if old.package != new.package:
            self.add("PACKAGE_CHANGED", "#/", f"the package was {old.package!r}, is {new.package!r}")
        self._messages(old.messages, new.messages, old.package, new.package, "#/")
        return self.reasons

    def _messages(self, old: list[ProtoMessage], new: list[ProtoMessage], before: str, after: str, path: str) -> None:
        present = {message.name: message for message in new}
        for message in old:
            at = f"{path}{message.name}"
            if message.name not in present:
                self.add("MESSAGE_REMOVED", at, f"the message {message.name} is gone")
                continue
            self._message(message, present[message.name], _join(before, message.name), _join(after, message.name), at)

    def _message(self, old: ProtoMessage, new: ProtoMessage, before: str, after: str, path: str) -> None:
        if (before, after) in self._seen:
            return
        self._seen.add((before, after))
        self._budget.spend(1 + len(old.fields) + len(new.fields) + len(old.messages) + len(new.messages))
        self._oneofs(old, new, path)
        gone = _gone_oneofs(old, new)
        old_fields = {field.number: field for field in old.fields}
        new_fields = {field.number: field for field in new.fields}
        for number in sorted(old_fields.keys() | new_fields.keys()):
            self._field_pair(gone, old_fields.get(number), new_fields.get(number), (before, after), f"{path}/{number}")
        self._messages(old.messages, new.messages, before, after, f"{path}/")

    def _field_pair(
        self, gone: set[str], old_field: Field | None, new_field: Field | None, scopes: tuple[str, str], at: str
    ) -> None:
        if old_field is not None and new_field is not None:
            self._field(old_field, new_field, scopes, at)
        elif old_field is not None:
            if old_field.oneof is not None and old_field.oneof not in gone:
                self.add(
                    "ONEOF_FIELD_REMOVED", at, f"the field {old_field.name} is gone from the oneof {old_field.oneof}"
                )
            elif old_field.label == "required" and old_field.oneof is None:
                self.add("REQUIRED_FIELD_REMOVED", at, f"the required field {old_field.name} is gone")
        elif new_field is not None and new_field.label == "required" and new_field.oneof is None:
            self.add("REQUIRED_FIELD_ADDED", at, f"the field {new_field.name} is new and required")

    def _oneofs(self, old: ProtoMessage, new: ProtoMessage, path: str) -> None:
        """Fields that were independent may not exclude each other now."""
        origin = {
            field.number: f"oneof {field.oneof}" if field.oneof else f"field {field.number}" for field in old.fields
        }
        joined: dict[str, set[str]] = {}
        for field in new.fields:
            if field.oneof is not None and field.number in origin:
                joined.setdefault(field.oneof, set()).add(origin[field.number])
        for name, groups in joined.items():
            if len(groups) > 1:
                moved = sum(group.startswith("field") for group in groups)
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self.add(kind, f"{path}/{name}", f"fields that could be set together exclude each other in {name}")

    # Fields

    def _field(self, old: Field, new: Field, scopes: tuple[str, str], at: str) -> None:
        if old.is_map and new.is_map:
            for part in ("key_type", "value_type"):
                self._type(getattr(old, part), getattr(new, part), scopes, at)
            return
        if old.is_map or new.is_map:
            self.add("FIELD_KIND_CHANGED", at, f"the field {new.name} was {_shown(old)}, is {_shown(new)}")
            return
        group = self._type(old.type, new.type, scopes, at)
        if group not in {None, "a string or bytes"} and (old.label == "repeated") != (new.label == "repeated"):
            text = f"the field {new.name} was {_labelled(old)}, is {_labelled(new)}"
            self.add("FIELD_NUMERIC_LABEL_CHANGED", at, text)

    def _type(self, old: str, new: str, scopes: tuple[str, str], at: str) -> str | None:
        """Compare two types; the wire group when both are scalars of the same one."""
        before, after = self._kind(old, scopes[0], self._writer), self._kind(new, scopes[1], self._reader)
        if before.shape != after.shape:
            self.add("FIELD_KIND_CHANGED", at, f"the type was {old}, is {new}")
            return None
        if before.shape == "scalar":
            if before.detail != after.detail:
                text = f"the type was {old} ({before.detail}), is {new} ({after.detail})"
                self.add("FIELD_SCALAR_KIND_CHANGED", at, text)
                return None
            return after.detail
        self._message_type(before.detail, after.detail, at)
        return None

    def _kind(self, name: str, scope: str, side: Resolved) -> _Kind:
        self._budget.spend(1 + scope.count(".") * (1 + len(scope) // CHARACTERS_A_STEP))
        if is_scalar(name):
            return _Kind("scalar", _GROUPS[name])
        try:
            full = resolve(name, scope, side.types)
        except SchemaProblem:
            return _Kind("message", name)
        return _Kind("scalar", "a varint") if isinstance(side.types[full], Enum) else _Kind("message", full)

    def _message_type(self, before: str, after: str, at: str) -> None:
        old, new = self._writer.types.get(before), self._reader.types.get(after)
        if _local(before, self._writer) != _local(after, self._reader):
            self.add("FIELD_NAMED_TYPE_CHANGED", at, f"the type was {before}, is {after}")
        elif isinstance(old, ProtoMessage) and isinstance(new, ProtoMessage):
            mark = len(self.reasons)
            self._message(old, new, before, after, f"{at}/{new.name}"[:1000])
            if len(self.reasons) > mark:
                self.add("FIELD_NAMED_TYPE_CHANGED", at, f"the type {after} changed in a way that cannot be read")


def _local(name: str, side: Resolved) -> str:
    """A name without the package of the file that it is in: an import may be renamed."""
    package = side.packages.get(name)
    return name.removeprefix(f"{package}.") if package else name


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _gone_oneofs(old: ProtoMessage, new: ProtoMessage) -> set[str]:
    """Removed as a whole, no member left: readers simply never see them."""
    left = {field.number for field in new.fields}
    kept = {field.oneof for field in old.fields if field.number in left}
    return {name for name in old.oneofs if name not in new.oneofs and name not in kept}


def _shown(field: Field) -> str:
    return "a map" if field.is_map else field.type


def _labelled(field: Field) -> str:
    return f"{field.label} {field.type}" if field.label else field.type
