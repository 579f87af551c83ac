"""Emit writers: fixed-width neighbours and lengths in one pack, everything else as pieces of a list."""

from __future__ import annotations

from tools.protocol.classes import default_value, is_nullable
from tools.protocol.layouts import FORMATS, Module, split
from tools.protocol.schema import Field

ZERO = "\\0"
ONE = "\\x01"
NULL = "\\xff"


class Writer:
    def __init__(self, module: Module, struct: str, version: int, out: str = "out") -> None:
        self.module = module
        self.struct = struct
        self.version = version
        self.out = out
        self.lines: list[str] = []
        self._fixed: list[tuple[str, str]] = []

    def fixed(self, code: str, value: str) -> None:
        self._fixed.append((code, value))

    def flush(self) -> None:
        if not self._fixed:
            return
        fmt = "".join(code for code, _ in self._fixed)
        values = ", ".join(value for code, value in self._fixed if code != "x")
        if not values:
            self.lines.append(f'{self.out}.append(b"{ZERO * len(fmt)}")')
        else:
            self.lines.append(f"{self.out}.append({self.module.packer(fmt)}({values}))")
        self._fixed = []

    def length(self, value: str, *, flexible: bool, code: str) -> None:
        """Write the length `value`; a compact one is one more than the length."""
        if flexible:
            self.flush()
            self.lines.append(f"n = {value} + 1")
            self.lines.append(f"{self.out}.append(UVARINT[n] if n < 128 else uvarint(n))")
        else:
            self.fixed(code, value)
            self.flush()

    def null(self, *, flexible: bool, code: str) -> list[str]:
        if flexible:
            return [f"{self.out}.append(UVARINT[0])"]
        return [f"{self.out}.append({self.module.packer(code)}(-1))"]

    def plain(self, field: Field, value: str, *, known_present: bool = False, in_tag: bool = False) -> None:
        if field.type in FORMATS:
            self.fixed(FORMATS[field.type][0], value)
            return
        flexible = self.module.is_flexible(self.version, field)
        nullable = self.version in field.nullable
        if field.is_struct and not field.is_array:
            self.single_struct(field, value, nullable=nullable, known_present=known_present, in_tag=in_tag)
            return
        code = "h" if field.type == "string" else "i"
        if known_present:
            self.present(field, value, flexible=flexible, code=code)
            return
        if not nullable:
            if is_nullable(field):
                self.flush()
                self.lines += [f"if {value} is None:", f'    unexpected_null("{self.struct}.{field.attribute}")']
            self.present(field, value, flexible=flexible, code=code)
            return
        self.flush()
        inner = Writer(self.module, self.struct, self.version, self.out)
        inner.present(field, f"{field.attribute}_value", flexible=flexible, code=code)
        self.lines += [f"{field.attribute}_value = {value}", f"if {field.attribute}_value is None:"]
        self.lines += [f"    {line}" for line in self.null(flexible=flexible, code=code)]
        self.lines += ["else:", *(f"    {line}" for line in inner.lines)]

    def present(self, field: Field, value: str, *, flexible: bool, code: str) -> None:
        if field.is_array:
            self.array(field, value, flexible=flexible)
        elif field.type == "string":
            self.lines.append(f"raw = {value}.encode()")
            self.length("len(raw)", flexible=flexible, code=code)
            self.lines.append(f"{self.out}.append(raw)")
        else:
            self.length(f"len({value})", flexible=flexible, code=code)
            self.lines.append(f"{self.out}.append({value})")

    def array(self, field: Field, value: str, *, flexible: bool) -> None:
        self.length(f"len({value})", flexible=flexible, code="i")
        if field.element in FORMATS:
            code = FORMATS[field.element][0]
            if code == "16s":
                self.lines.append(f"{self.out}.extend({value})")
            else:
                self.lines.append(f'{self.out}.append(pack(f">{{len({value})}}{code}", *{value}))')
        elif field.is_struct:
            writer = write_function(self.module, field.element, self.version)
            self.lines += [
                f"for {field.attribute}_item in {value} if len({value}) < 8 else paced({value}):",
                f"    {writer}({field.attribute}_item, {self.out})",
            ]
        else:
            inner = Writer(self.module, self.struct, self.version, self.out)
            if field.element == "string":
                inner.lines.append("raw = element.encode()")
            else:
                inner.lines.append("raw = element")
            inner.length("len(raw)", flexible=flexible, code="h" if field.element == "string" else "i")
            inner.lines.append(f"{self.out}.append(raw)")
            self.lines += [
                f"for element in {value} if len({value}) < 8 else paced({value}):",
                *(f"    {line}" for line in inner.lines),
            ]

    def single_struct(self, field: Field, value: str, *, nullable: bool, known_present: bool, in_tag: bool) -> None:
        """A nullable struct has a marker before it: -1 for null as a plain field, 0 as a tagged one."""
        writer = write_function(self.module, field.element, self.version)
        self.flush()
        if nullable and known_present:
            self.lines += [f'{self.out}.append(b"{ONE}")', f"{writer}({value}, {self.out})"]
            return
        if not nullable:
            if field.nullable.low <= field.nullable.high:
                self.lines += [f"if {value} is None:", f'    unexpected_null("{self.struct}.{field.attribute}")']
            self.lines.append(f"{writer}({value}, {self.out})")
            return
        null = ZERO if in_tag else NULL
        self.lines += [f"if {value} is None:", f'    {self.out}.append(b"{null}")', "else:"]
        self.lines += [f'    {self.out}.append(b"{ONE}")', f"    {writer}({value}, {self.out})"]

    def tags(self, tagged: list[Field]) -> None:
        if not tagged:
            self.fixed("x", "")
            return
        self.flush()
        self.lines += ["tags: list[tuple[int, bytes]] = []", "piece: list[Any]"]
        for field in tagged:
            default = default_value(field)
            test = (
                f"self.{field.attribute} is not None" if default == "None" else f"self.{field.attribute} != {default}"
            )
            if default.startswith("_DEFAULT_"):
                test = f"self.{field.attribute} is not {default} and {test}"
            if default == "[]":
                test = f"self.{field.attribute}"
                if field.nullable.low <= field.nullable.high:
                    test = f"self.{field.attribute} is None or self.{field.attribute}"
            inner = Writer(self.module, self.struct, self.version, "piece")
            inner.plain(field, f"self.{field.attribute}", known_present=default == "None", in_tag=True)
            inner.flush()
            self.lines += [f"if {test}:", "    piece = []", *(f"    {line}" for line in inner.lines)]
            self.lines.append(f'    tags.append(({field.tag}, b"".join(piece)))')
        self.lines += ["if tags:", "    write_tags(out, tags)", "else:", '    out.append(b"\\0")']


def write_function(module: Module, struct: str, version: int) -> str:
    writer = Writer(module, struct, version)
    plain, tagged = split(module, struct, version)
    for field in plain:
        writer.plain(field, f"self.{field.attribute}")
    if module.is_flexible(version):
        writer.tags(tagged)
    writer.flush()
    body = writer.lines or ["pass"]
    return module.function(
        "write", struct, version, body, lambda name: f"def {name}(self: {struct}, out: list[Any]) -> None:"
    )
