"""Read a .proto file: proto2, proto3 and editions. Comments mean nothing and are dropped; anything else is kept.

Names are not looked up here (`proto_descriptor.py` does), so a file can be read without those that it imports.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ottla.registry.schemas.budget import Budget, given_or_new
from ottla.registry.schemas.parsed import SchemaProblem
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

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>(?:0[xX][0-9a-fA-F]++|(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)[fF]?(?!\w))
    |(?P<word>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<symbol>[{}\[\]()<>=;,:+\-/.])""",
    re.VERBOSE | re.DOTALL,
)
_MAX_DEPTH = 64
_LABELS = {"optional", "required", "repeated"}
_KEY_TYPES = frozenset(
    {"int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64", "bool",
     "string"}
)  # fmt: skip
_MAX_NUMBER = 536_870_911
_MAX_DIGITS = 22
_MAX_NAME = 500
"""Characters of a package: each name in a file is looked for in every scope of it."""


class ProtoToken(NamedTuple):
    kind: str
    text: str
    line: int


def parse_proto(text: str, budget: Budget | None = None) -> ProtoFile:
    budget = given_or_new(budget)
    return _Parser(_tokens(text, budget), budget).file()


def _tokens(text: str, budget: Budget) -> list[ProtoToken]:
    budget.read(text)
    tokens, pos, line = [], 0, 1
    while pos < len(text):
        budget.spend()
        match = _TOKEN.match(text, pos)
        if match is None:
            raise SchemaProblem(f"line {line}: cannot read {text[pos : pos + 20]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(ProtoToken(kind, match.group(), line))
        line += match.group().count("\n")
        pos = match.end()
    # As many as the parser ever looks ahead.
    return [*tokens, *[ProtoToken("end", "", line)] * 3]


def unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


class _Parser:
    def __init__(self, tokens: list[ProtoToken], budget: Budget) -> None:
        self._tokens = tokens
        self._budget = budget
        self._at = 0
        self._depth = 0

    # Tokens

    @property
    def _next(self) -> ProtoToken:
        return self._tokens[self._at]

    def _problem(self, expected: str) -> SchemaProblem:
        actual = self._next.text[:100] or "the end of the file"
        return SchemaProblem(f"line {self._next.line}: expected {expected}, found {actual!r}")

    def _take(self, text: str) -> None:
        if self._next.text != text or self._next.kind == "string":
            raise self._problem(repr(text))
        self._at += 1

    def _peek(self, text: str) -> bool:
        return self._next.text == text and self._next.kind != "string"

    def _skip(self, text: str) -> bool:
        if self._peek(text):
            self._at += 1
            return True
        return False

    def _of(self, kind: str, expected: str) -> str:
        if self._next.kind != kind:
            raise self._problem(expected)
        self._at += 1
        return self._tokens[self._at - 1].text

    def _name(self, expected: str) -> str:
        name = self._of("word", expected)
        if "." in name:
            self._at -= 1
            raise self._problem(expected)
        return name

    def _integer(self, expected: str) -> int:
        sign = -1 if self._skip("-") else 1
        text = self._of("number", expected)
        try:
            if len(text) > _MAX_DIGITS:
                raise ValueError(text[:_MAX_DIGITS])
            return sign * (int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0))
        except ValueError as error:
            self._at -= 1
            raise self._problem(expected) from error

    def _string(self, expected: str) -> str:
        parts = [unquoted(self._of("string", expected))]
        while self._next.kind == "string":
            parts.append(unquoted(self._of("string", expected)))
        return "".join(parts)

    def _block(self, read: Callable[[], None]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SchemaProblem(f"line {self._next.line}: nested more than {_MAX_DEPTH} deep")
        self._take("{")
        while not self._skip("}"):
            if not self._skip(";"):
                # A line is printed through every block around it.
                self._budget.spend(1 + self._depth)
                read()
        self._depth -= 1

    # The file

    def file(self) -> ProtoFile:
        file = ProtoFile()
        if self._peek("syntax"):
            self._at += 1
            self._take("=")
            file.syntax = self._string("the syntax in quotes")
            if file.syntax not in {"proto2", "proto3"}:
                raise SchemaProblem(f"the syntax {file.syntax!r} is neither proto2 nor proto3")
            self._take(";")
        elif self._peek("edition"):
            self._at += 1
            self._take("=")
            file.edition, file.syntax = self._string("the edition in quotes"), "editions"
            self._take(";")
        while self._next.kind != "end":
            if not self._skip(";"):
                self._statement(file)
        return file

    def _statement(self, file: ProtoFile) -> None:
        word = self._of("word", "a statement")
        if word == "package":
            file.package = self._of("word", "the package")
            if len(file.package) > _MAX_NAME:
                raise SchemaProblem(f"line {self._next.line}: a package of more than {_MAX_NAME} characters")
            self._take(";")
        elif word == "import":
            kind = self._of("word", "public or weak") if self._next.kind == "word" else ""
            file.imports.append(Import(self._string("a path in quotes"), kind))
            self._take(";")
        elif word == "option":
            file.options.append(self._option_statement())
        elif word == "message":
            file.messages.append(self._message())
        elif word == "enum":
            file.enums.append(self._enum())
        elif word == "extend":
            file.extends.append(self._extend())
        elif word == "service":
            file.services.append(self._service())
        else:
            self._at -= 1
            raise self._problem("a message, enum, service, import, option or package")

    # Options

    def _option_statement(self) -> ProtoOption:
        option = self._option()
        self._take(";")
        return option

    def _option(self) -> ProtoOption:
        parts = []
        while True:
            if self._skip("("):
                parts.append(f"({self._of('word', 'the name of an option')})")
                self._take(")")
            else:
                parts.append(self._of("word", "the name of an option"))
            if self._next.kind == "word" and self._next.text.startswith("."):
                parts.append(self._of("word", "a name"))
            if not self._skip("."):
                break
            parts.append(".")
        self._take("=")
        return ProtoOption("".join(parts), self._constant())

    def _constant(self) -> str:
        if self._peek("{"):
            return self._aggregate("{", "}")
        sign = "-" if self._skip("-") else "+" if self._skip("+") else ""
        if self._next.kind == "string":
            parts = [self._of("string", "a value")[1:-1]]
            quote = self._tokens[self._at - 1].text[0]
            while self._next.kind == "string":
                parts.append(self._of("string", "a value")[1:-1])
            text = "".join(parts)
            return f'"{text}"' if quote == '"' else '"' + text.replace('"', '\\"').replace("\\'", "'") + '"'
        if self._next.kind in {"word", "number"}:
            self._at += 1
            return sign + self._tokens[self._at - 1].text
        raise self._problem("a value")

    def _aggregate(self, opening: str, closing: str) -> str:
        """A message literal, kept as text with one blank between words."""
        self._take(opening)
        words, depth = [opening], 1
        while depth:
            token = self._next
            if token.kind == "end":
                raise self._problem(repr(closing))
            depth += {opening: 1, closing: -1}.get(token.text, 0) if token.kind == "symbol" else 0
            words.append(token.text)
            self._at += 1
        return " ".join(words)

    def _field_options(self) -> list[ProtoOption]:
        options: list[ProtoOption] = []
        if self._skip("["):
            while True:
                options.append(self._option())
                if not self._skip(","):
                    break
            self._take("]")
        return options

    # Messages

    def _message(self, *, group: str | None = None) -> ProtoMessage:
        message = ProtoMessage(group or self._name("the name of a message"), is_group=group is not None)
        self._block(lambda: self._member(message))
        return message

    def _member(self, message: ProtoMessage) -> None:
        word = self._next.text if self._next.kind == "word" else ""
        after = self._tokens[self._at + 1]
        if word == "message" and after.kind == "word" and self._tokens[self._at + 2].text == "{":
            self._at += 1
            message.messages.append(self._message())
        elif word == "enum" and after.kind == "word" and self._tokens[self._at + 2].text == "{":
            self._at += 1
            message.enums.append(self._enum())
        elif word == "oneof" and after.kind == "word" and self._tokens[self._at + 2].text == "{":
            self._at += 1
            self._oneof(message)
        elif word == "extend" and after.kind == "word" and self._tokens[self._at + 2].text == "{":
            self._at += 1
            message.extends.append(self._extend())
        elif word == "option" and (after.kind == "word" or after.text == "("):
            self._at += 1
            message.options.append(self._option_statement())
        elif word == "reserved" and self._tokens[self._at + 1].text != "=":
            self._at += 1
            message.reserved += self._ranges()
        elif word == "extensions":
            self._at += 1
            message.extensions += self._ranges()
        else:
            message.fields.append(self._field(message))

    def _ranges(self) -> list[str]:
        """`2, 9 to 11, "foo"`; a declaration after extension ranges is dropped."""
        ranges = []
        while True:
            if self._next.kind == "string":
                ranges.append(f'"{self._string("a name")}"')
            elif self._next.kind == "word":
                ranges.append(f'"{self._name("a name")}"')
            else:
                text = str(self._integer("a number, a range or a name"))
                if self._skip("to"):
                    text += " to max" if self._skip("max") else f" to {self._integer('the end of a range')}"
                ranges.append(text)
            if not self._skip(","):
                break
        if self._peek("["):
            self._aggregate("[", "]")
        self._take(";")
        return ranges

    def _oneof(self, message: ProtoMessage) -> None:
        name = self._name("the name of a oneof")
        options = message.oneofs.setdefault(name, [])

        def read() -> None:
            if self._peek("option") and self._tokens[self._at + 1].kind in {"word", "symbol"}:
                self._at += 1
                options.append(self._option_statement())
                return
            field = self._field(message)
            field.oneof = name
            message.fields.append(field)

        self._block(read)

    def _field(self, message: ProtoMessage | None) -> Field:
        label = ""
        if self._next.text in _LABELS and self._tokens[self._at + 1].kind == "word":
            label = self._of("word", "a label")
        if self._peek("map") and self._tokens[self._at + 1].text == "<":
            return self._map_field()
        kind = self._of("word", "the type of a field")
        if kind == "group" and self._tokens[self._at + 1].text == "=":
            return self._group(message, label)
        name = self._name("the name of a field")
        self._take("=")
        field = Field(name, self._number(), kind, label, self._field_options())
        self._take(";")
        return field

    def _number(self) -> int:
        number = self._integer("the number of a field")
        if not 1 <= number <= _MAX_NUMBER or 19_000 <= number <= 19_999:
            raise SchemaProblem(f"line {self._next.line}: {number} is not a valid field number")
        return number

    def _map_field(self) -> Field:
        self._take("map")
        self._take("<")
        key = self._of("word", "the type of the keys")
        if key not in _KEY_TYPES:
            raise SchemaProblem(f"line {self._next.line}: {key} cannot be the key type of a map")
        self._take(",")
        value = self._of("word", "the type of the values")
        self._take(">")
        name = self._name("the name of a field")
        self._take("=")
        field = Field(name, self._number(), "map", "", self._field_options(), None, key, value)
        self._take(";")
        return field

    def _group(self, message: ProtoMessage | None, label: str) -> Field:
        name = self._name("the name of a group")
        self._take("=")
        number = self._number()
        options = self._field_options()
        inner = self._message(group=name)
        if message is not None:
            message.messages.append(inner)
        return Field(name.lower(), number, name, label, options)

    def _enum(self) -> Enum:
        enum = Enum(self._name("the name of an enum"))

        def read() -> None:
            if self._peek("option") and self._tokens[self._at + 1].text != "=":
                self._at += 1
                enum.options.append(self._option_statement())
            elif self._peek("reserved") and self._tokens[self._at + 1].text != "=":
                self._at += 1
                enum.reserved.extend(self._ranges())
            else:
                name = self._name("the name of a value")
                self._take("=")
                enum.values.append(EnumValue(name, self._integer("a number"), self._field_options()))
                self._take(";")

        self._block(read)
        if not enum.values:
            raise SchemaProblem(f"the enum {enum.name} has no values")
        return enum

    def _extend(self) -> Extend:
        extend = Extend(self._of("word", "the type to extend"))
        self._block(lambda: extend.fields.append(self._field(None)))
        return extend

    # Services

    def _service(self) -> Service:
        service = Service(self._name("the name of a service"))

        def read() -> None:
            if self._skip("option"):
                service.options.append(self._option_statement())
            else:
                self._take("rpc")
                service.methods.append(self._method())

        self._block(read)
        return service

    def _method(self) -> Method:
        name = self._name("the name of a method")
        client, input_type = self._message_type()
        self._take("returns")
        server, returned = self._message_type()
        method = Method(name, input_type, returned, client, server)
        if self._peek("{"):

            def read() -> None:
                self._take("option")
                method.options.append(self._option_statement())

            self._block(read)
        else:
            self._take(";")
        return method

    def _message_type(self) -> tuple[bool, str]:
        self._take("(")
        streaming = self._peek("stream") and self._tokens[self._at + 1].kind == "word" and self._skip("stream")
        name = self._of("word", "the type of a message")
        self._take(")")
        return streaming, name
