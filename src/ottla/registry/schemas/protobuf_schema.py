"""Protobuf: read by our own parser or from a base64 descriptor, run by protobuf's own runtime."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ottla.payloads.confluent import message_indexes
from ottla.registry.records import PROTOBUF
from ottla.registry.schemas.budget import CHARACTERS_A_STEP, Budget, given_or_new
from ottla.registry.schemas.json_text import one_line
from ottla.registry.schemas.parsed import Dependency, Incompatibility, SchemaProblem, Validator
from ottla.registry.schemas.proto_descriptor import to_descriptor
from ottla.registry.schemas.proto_from_descriptor import to_tree
from ottla.registry.schemas.proto_names import Types
from ottla.registry.schemas.proto_parser import parse_proto
from ottla.registry.schemas.proto_printer import print_proto
from ottla.registry.schemas.proto_rules import Resolved, incompatibilities
from ottla.registry.schemas.proto_tree import Enum, ProtoFile, ProtoMessage
from ottla.registry.schemas.proto_well_known import well_known_descriptor, well_known_tree

_OWN_NAME = "default.proto"
_QUICK_BYTES = 256 * 1024


class ProtobufSchema:
    schema_type = PROTOBUF

    def __init__(self, text: str, dependencies: Sequence[Dependency] = (), budget: Budget | None = None) -> None:
        budget = given_or_new(budget)
        try:
            self.tree = read_proto(text, budget)
            self._imported = {dependency.name: read_proto(dependency.schema, budget) for dependency in dependencies}
            self._add_well_known(self.tree)
            for tree in list(self._imported.values()):
                self._add_well_known(tree)
            self.types = self._all_types(budget)
            self._descriptor = to_descriptor(self.tree, _OWN_NAME, self.types)
            self._pool = self._build()
            self.canonical = print_proto(self.tree)
            self.canonical.encode()
            self._check_printed(budget)
        except (TypeError, KeyError, IndexError, ValueError, OverflowError, RecursionError) as error:
            raise SchemaProblem(one_line(error) or type(error).__name__) from error

    def _check_printed(self, budget: Budget) -> None:
        """What a descriptor holds and a .proto file cannot: a stored text must be readable again."""
        if print_proto(parse_proto(self.canonical, budget)) != self.canonical:
            raise SchemaProblem("the descriptor cannot be written as a .proto file")

    def _add_well_known(self, tree: ProtoFile) -> None:
        for imported in tree.imports:
            if imported.path in self._imported:
                continue
            imported_tree = well_known_tree(imported.path)
            if imported_tree is None:
                proto = well_known_descriptor(imported.path)
                if proto is None:
                    raise SchemaProblem(f'the import "{imported.path}" is not found: no reference has that name')
                imported_tree = to_tree(proto)
            self._imported[imported.path] = imported_tree
            self._add_well_known(imported_tree)

    def _all_types(self, budget: Budget) -> Types:
        types: dict[str, ProtoMessage | Enum] = {}
        for tree in (*self._imported.values(), self.tree):
            for name, type_tree in tree.types():
                # Each field's type is looked for in every scope of the name, and a name may be as long as the file.
                scopes = 1 + name.count(".") * (1 + len(name) // CHARACTERS_A_STEP)
                budget.spend(scopes * (1 + len(type_tree.fields) if isinstance(type_tree, ProtoMessage) else 1))
                types[name] = type_tree
        return types

    def _build(self) -> DescriptorPool:
        """Protobuf's own runtime has the last word on whether this is a schema."""
        pool = DescriptorPool()
        added: set[str] = set()
        for path in self._imported:
            self._add_file(pool, path, added, ())
        pool.Add(self._descriptor)
        pool.FindFileByName(_OWN_NAME)
        return pool

    def _add_file(self, pool: DescriptorPool, path: str, added: set[str], above: tuple[str, ...]) -> None:
        if path in above:
            raise SchemaProblem(f"the imports go in a circle: {' -> '.join((*above, path))}")
        if path in added:
            return
        tree = self._imported[path]
        for imported in tree.imports:
            if imported.path in self._imported:
                self._add_file(pool, imported.path, added, (*above, path))
        added.add(path)
        pool.Add(well_known_descriptor(path) or to_descriptor(tree, path, self.types))

    def normalized(self) -> str:
        """Names in full, imports and options sorted."""
        tree = to_tree(self._descriptor)
        tree.imports.sort(key=lambda imported: imported.path)
        tree.options.sort(key=lambda option: option.name)
        return print_proto(tree)

    def serialized(self) -> str:
        return base64.b64encode(self._descriptor.SerializeToString(deterministic=True)).decode()

    def check_new(self) -> None:
        """Nothing: what is no schema is refused by the constructor."""

    def incompatibilities(self, writer: ProtobufSchema, budget: Budget | None = None) -> list[Incompatibility]:
        return incompatibilities(writer.resolved(), self.resolved(), given_or_new(budget))

    def resolved(self) -> Resolved:
        packages = {name: tree.package for tree in (*self._imported.values(), self.tree) for name, _ in tree.types()}
        return Resolved(self.tree, self.types, packages)

    def message_class(self, full_name: str) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self._pool.FindMessageTypeByName(full_name))

    def validator(self) -> Validator:
        classes: dict[tuple[int, ...], Any] = {}

        def check(payload: bytes) -> str | None:
            try:
                indexes, start = message_indexes(payload)
                if indexes not in classes:
                    classes[indexes] = self.message_class(self._name_at(indexes))
                message = classes[indexes]()
                message.ParseFromString(payload[start:])
            except IndexError:
                return "the message index is not in the schema"
            except (DecodeError, ValueError) as error:
                return f"not Protobuf of its schema: {' '.join(str(error).split())}"
            return None if message.IsInitialized() else "required fields are missing"

        return Validator(check, _QUICK_BYTES)

    def _name_at(self, indexes: tuple[int, ...]) -> str:
        level, names = self.tree.messages, [self.tree.package] if self.tree.package else []
        for index in indexes:
            names.append(level[index].name)
            level = level[index].messages
        return ".".join(names)


def read_proto(text: str, budget: Budget) -> ProtoFile:
    """Text, or base64 of a FileDescriptorProto as Python's serializer sends it."""
    stripped = text.strip()
    if stripped and not any(letter in stripped for letter in ";{ \n"):
        try:
            budget.spend(1 + len(stripped) // 4)
            proto = FileDescriptorProto.FromString(base64.b64decode(stripped, validate=True))
            return to_tree(proto)
        except (binascii.Error, DecodeError, ValueError, KeyError, IndexError) as error:
            raise SchemaProblem("neither a .proto file nor base64 of a file descriptor") from error
    return parse_proto(text, budget)
