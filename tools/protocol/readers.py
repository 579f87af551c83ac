"""Emit readers: fixed-width neighbours in one unpack, lengths checked before anything is allocated."""

from __future__ import annotations

from tools.protocol.classes import annotation, default_value
from tools.protocol.layouts import FORMATS, Module, split
from tools.protocol.schema import Field

_RESERVED = {"buf", "pos", "n", "end", "raw", "tag", "size", "item", "type", "range", "len", "str", "bytes", "list"}
_LOOP = "for _ in range(n) if n < 8 else paced(range(n)):"
"""Short arrays are free: the array around them is counted."""
_CHARGE = ("if n > 63:", "    charge(n)")


def local(field: Field) -> str:
    name = field.attribute
    return f"{name}_" if name in _RESERVED else name


class Reader:
    """Collects the lines of one reader; `_fixed` holds fields waiting to be unpacked together."""

    def __init__(self, module: Module, struct: str, version: int, *, in_tag: bool = False) -> None:
        self.module = module
        self.struct = struct
        self.version = version
        self.in_tag = in_tag
        self.lines: list[str] = []
        self._fixed: list[tuple[str, str, int]] = []

    def flush(self) -> None:
        if not self._fixed:
            return
        fmt = "".join(code for code, _, _ in self._fixed)
        names = ", ".join(name for _, name, _ in self._fixed)
        names = f"({names},)" if len(self._fixed) == 1 else names
        self.lines.append(f"{names} = {self.module.unpacker(fmt)}(buf, pos)")
        self.lines.append(f"pos += {sum(size for _, _, size in self._fixed)}")
        self._fixed = []

    def uvarint(self) -> None:
        self.flush()
        self.lines += ["n = buf[pos]", "pos += 1", "if n > 127:", "    n, pos = uvarint_rest(buf, pos, n)"]

    def length(self, *, flexible: bool, code: str) -> None:
        """Leave the length in `n`: any negative one is null, as in Kafka's own readers."""
        if flexible:
            self.uvarint()
            self.lines.append("n -= 1")
        else:
            self._fixed.append((code, "n", FORMATS[{"h": "int16", "i": "int32"}[code]][1]))
            self.flush()

    def plain(self, field: Field) -> None:
        target = local(field)
        if field.type in FORMATS:
            code, size = FORMATS[field.type]
            self._fixed.append((code, target, size))
            return
        self.variable(field, target)

    def variable(self, field: Field, target: str) -> None:
        flexible = self.module.is_flexible(self.version, field)
        nullable = self.version in field.nullable
        label = f"{self.struct}.{field.attribute}"
        if field.is_array:
            self.array(field, target, flexible=flexible, nullable=nullable, label=label)
        elif field.is_struct:
            self.single_struct(field, target, nullable=nullable)
        else:
            self.length(flexible=flexible, code="h" if field.type == "string" else "i")
            self.blob(field.type, target, nullable=nullable, label=label)

    def blob(self, kind: str, target: str, *, nullable: bool, label: str) -> None:
        value = {
            "string": 'str(raw, "utf-8", "replace")',
            "bytes": "bytes(raw)",
            "records": "raw",
        }[kind]
        self.lines.append("if n < 0:")
        if nullable:
            self.lines.append(f"    {target} = None")
        else:
            self.lines.append(f'    unexpected_null("{label}")')
        lines = ["end = pos + n", "raw = buf[pos:end]", "if len(raw) != n:", "    truncated()"]
        if kind == "string":
            lines = ["if n > MAX_STRING:", f'    bad_length("{label}", n)', *lines]
        lines += [f"{target} = {value}", "pos = end"]
        if nullable:
            self.lines += ["else:", *(f"    {line}" for line in lines)]
        else:
            self.lines += lines

    def array(self, field: Field, target: str, *, flexible: bool, nullable: bool, label: str) -> None:
        self.length(flexible=flexible, code="i")
        self.lines.append("if n < 0:")
        if nullable:
            self.lines += [f"    {target} = None", "else:"]
            indent = "    "
        else:
            self.lines.append(f'    unexpected_null("{label}")')
            indent = ""
        self.lines += [f"{indent}{line}" for line in self.elements(field, target, label=label)]

    def elements(self, field: Field, target: str, *, label: str) -> list[str]:
        """The loop over an array's elements; a count that cannot fit in the bytes left is refused first."""
        check = ["if n > len(buf) - pos:", "    truncated()"]
        if field.element in FORMATS:
            code, size = FORMATS[field.element]
            return [
                f"if n * {size} > len(buf) - pos:",
                "    truncated()",
                *_CHARGE,
                f'{target} = list(unpack_from(f">{{n}}{code}", buf, pos))'
                if code != "16s"
                else f"{target} = [Uuid(bytes(buf[i : i + 16])) for i in range(pos, pos + 16 * n, 16)]",
                f"pos += n * {size}",
            ]
        if field.is_struct:
            reader = read_function(self.module, field.element, self.version)
            return [
                *check,
                f"{target} = []",
                _LOOP,
                f"    {target}_item, pos = {reader}(buf, pos)",
                f"    {target}.append({target}_item)",
            ]
        inner = Reader(self.module, self.struct, self.version)
        flexible = self.module.is_flexible(self.version, field)
        inner.length(flexible=flexible, code="h" if field.element == "string" else "i")
        inner.blob(field.element, "element", nullable=False, label=label)
        return [
            *check,
            f"{target} = []",
            _LOOP,
            *(f"    {line}" for line in inner.lines),
            f"    {target}.append(element)",
        ]

    def single_struct(self, field: Field, target: str, *, nullable: bool) -> None:
        reader = read_function(self.module, field.element, self.version)
        self.flush()
        if not nullable:
            self.lines.append(f"{target}, pos = {reader}(buf, pos)")
            return
        if self.in_tag:
            self.uvarint()
        else:
            self.lines += ["n = buf[pos]", "pos += 1"]
        self.lines += [
            "if n == 0:" if self.in_tag else "if n > 127:",
            f"    {target} = None",
            "else:",
            f"    {target}, pos = {reader}(buf, pos)",
        ]

    def tags(self, tagged: list[Field]) -> None:
        """Tagged fields. A known one ends where its value ends, whatever size it announced, as in Kafka's own readers:
        jumping by that size instead would let a message be read over and over from the same bytes.
        """
        if not tagged:
            self.flush()
            self.lines += ["if buf[pos]:", "    pos = skip_tags(buf, pos)", "else:", "    pos += 1"]
            return
        self.uvarint()
        for field in tagged:
            self.lines.insert(0, f"{local(field)}: {annotation(field)} = {default_value(field)}")
        self.lines += ["for _ in tag_numbers(n) if n else ():", "    tag, pos = read_uvarint(buf, pos)"]
        self.lines.append("    size, pos = read_uvarint(buf, pos)")
        keyword = "if"
        for field in tagged:
            inner = Reader(self.module, self.struct, self.version, in_tag=True)
            inner.plain(field)
            inner.flush()
            self.lines += [f"    {keyword} tag == {field.tag}:", *(f"        {line}" for line in inner.lines)]
            keyword = "elif"
        self.lines += ["    else:", "        pos += size", "        if pos > len(buf):", "            truncated()"]


def read_function(module: Module, struct: str, version: int) -> str:
    reader = Reader(module, struct, version)
    plain, tagged = split(module, struct, version)
    for field in plain:
        reader.plain(field)
    reader.flush()
    if module.is_flexible(version):
        reader.tags(tagged)
    present = {f.name for f in (*plain, *tagged)}
    arguments = ", ".join(local(f) if f.name in present else default_value(f) for f in module.struct_fields(struct))
    body = [*reader.lines, f"return {struct}({arguments}), pos"]
    return module.function(
        "read", struct, version, body, lambda name: f"def {name}(buf: Any, pos: int) -> tuple[{struct}, int]:"
    )
