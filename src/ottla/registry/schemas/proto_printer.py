"""Print a .proto tree: the canonical text that is stored and compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.registry.schemas.proto_tree import Enum, Extend, Field, ProtoFile, ProtoMessage, ProtoOption, Service


def print_proto(file: ProtoFile) -> str:
    blocks: list[str] = []
    blocks.append(f'edition = "{file.edition}";' if file.edition else f'syntax = "{file.syntax}";')
    if file.package:
        blocks.append(f"package {file.package};")
    if file.imports:
        blocks.append("\n".join(f'import {_spaced(imported.kind)}"{imported.path}";' for imported in file.imports))
    if file.options:
        blocks.append("\n".join(_option_statements(file.options)))
    blocks += ["\n".join(_message(message)) for message in file.messages]
    blocks += ["\n".join(_enum(enum)) for enum in file.enums]
    blocks += ["\n".join(_extend(extend, None)) for extend in file.extends]
    blocks += ["\n".join(_service(service)) for service in file.services]
    return "\n\n".join(blocks) + "\n"


def _spaced(word: str) -> str:
    return f"{word} " if word else ""


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _option_statements(options: list[ProtoOption]) -> Iterator[str]:
    return (f"option {option.name} = {option.value};" for option in options)


def _options(options: list[ProtoOption]) -> str:
    return f" [{', '.join(f'{option.name} = {option.value}' for option in options)}]" if options else ""


def _message(message: ProtoMessage, header: str = "") -> Iterator[str]:
    yield f"{header or f'message {message.name}'} {{"
    yield from _indented(_option_statements(message.options))
    if message.reserved:
        yield from _indented(_reserved(message.reserved))
    groups = {inner.name: inner for inner in message.messages if inner.is_group}
    printed: set[str] = set()
    members: dict[str, list[Field]] = {}
    for field in message.fields:
        members.setdefault(field.oneof or "", []).append(field)
    for field in message.fields:
        if field.oneof is None:
            yield from _indented(_field(field, groups.get(field.type)))
        elif field.oneof not in printed:
            printed.add(field.oneof)
            yield f"  oneof {field.oneof} {{"
            yield from _indented(_indented(_option_statements(message.oneofs.get(field.oneof, []))))
            for member in members[field.oneof]:
                yield from _indented(_indented(_field(member, groups.get(member.type))))
            yield "  }"
    for extensions in message.extensions:
        yield f"  extensions {extensions};"
    for extend in message.extends:
        yield from _indented(_extend(extend, message))
    for inner in message.messages:
        if not inner.is_group:
            yield from _indented(_message(inner))
    for enum in message.enums:
        yield from _indented(_enum(enum))
    yield "}"


def _reserved(reserved: list[str]) -> Iterator[str]:
    numbers = [reserved_range for reserved_range in reserved if not reserved_range.startswith('"')]
    names = [reserved_name for reserved_name in reserved if reserved_name.startswith('"')]
    for kind in (numbers, names):
        if kind:
            yield f"reserved {', '.join(kind)};"


def _field(field: Field, group: ProtoMessage | None) -> Iterator[str]:
    if group is not None:
        head = f"{_spaced(field.label)}group {group.name} = {field.number}{_options(field.options)}"
        yield from _message(group, head)
        return
    kind = f"map<{field.key_type}, {field.value_type}>" if field.is_map else field.type
    yield f"{_spaced(field.label)}{kind} {field.name} = {field.number}{_options(field.options)};"


def _enum(enum: Enum) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from _indented(_option_statements(enum.options))
    yield from _indented(_reserved(enum.reserved))
    for value in enum.values:
        yield f"  {value.name} = {value.number}{_options(value.options)};"
    yield "}"


def _extend(extend: Extend, message: ProtoMessage | None) -> Iterator[str]:
    groups = {inner.name: inner for inner in message.messages if inner.is_group} if message else {}
    yield f"extend {extend.target} {{"
    for field in extend.fields:
        yield from _indented(_field(field, groups.get(field.type)))
    yield "}"


def _service(service: Service) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from _indented(_option_statements(service.options))
    for method in service.methods:
        input_type = f"{'stream ' if method.client_streaming else ''}{method.input}"
        returned = f"{'stream ' if method.server_streaming else ''}{method.output}"
        line = f"  rpc {method.name} ({input_type}) returns ({returned})"
        if method.options:
            yield f"{line} {{"
            yield from _indented(_indented(_option_statements(method.options)))
            yield "  }"
        else:
            yield f"{line};"
    yield "}"
