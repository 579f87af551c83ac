"""Emit the slotted classes: one for each struct, with the fields of all versions and the schema's defaults."""

from __future__ import annotations

from tools.protocol.schema import Field

PYTHON_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "uuid": "Uuid",
    "bytes": "bytes",
    "records": "Records",
}
INTEGERS = {"int8", "int16", "uint16", "int32", "uint32", "int64"}


def is_nullable(field: Field) -> bool:
    return field.nullable.high >= field.nullable.low or field.default == "null" or field.type == "records"


def annotation(field: Field) -> str:
    base = PYTHON_TYPES.get(field.element, field.element)
    if field.is_array:
        base = f"list[{base}]"
    return f"{base} | None" if is_nullable(field) else base


def default_value(field: Field) -> str:
    """The schema's default as a Python expression: a fresh list, but one shared struct (never mutate a default)."""
    if field.default == "null" or field.type == "records":
        return "None"
    if field.is_array:
        return "[]"
    kind = field.type
    text = field.default
    if kind in INTEGERS:
        return str(int(text, 0)) if text else "0"
    if kind == "bool":
        return "True" if text == "true" else "False"
    if kind == "float64":
        return repr(float(text)) if text else "0.0"
    if kind == "string":
        return repr(text or "").replace("'", '"')
    if kind == "uuid":
        return "ZERO_UUID"
    if kind == "bytes":
        return 'b""'
    return f"_DEFAULT_{kind}"


def _parameter(field: Field) -> tuple[str, str]:
    """The constructor's parameter and the expression that is stored."""
    name, value = field.attribute, default_value(field)
    if value == "[]":
        return f"{name}: {annotation(field)} = EMPTY", f"[] if {name} is EMPTY else {name}"
    if value.endswith("()"):
        if is_nullable(field):
            return f"{name}: {annotation(field)} = EMPTY", f"{value} if {name} is EMPTY else {name}"
        return f"{name}: {annotation(field)} | None = None", f"{value} if {name} is None else {name}"
    return f"{name}: {annotation(field)} = {value}", name


def emit_class(name: str, base: str, fields: tuple[Field, ...], constants: list[str]) -> list[str]:
    slots = "".join(f'"{f.attribute}", ' for f in fields).rstrip()
    lines = ["", "", f"class {name}({base}):"]
    lines += [f"    __slots__ = ({slots})" if fields else "    __slots__ = ()"]
    lines += [f"    {line}" for line in constants]
    lines += [f"    {f.attribute}: {annotation(f)}" for f in fields]
    if not fields:
        return lines
    parameters = [_parameter(f) for f in fields]
    lines += ["", "    def __init__(", "        self,"]
    lines += [f"        {parameter}," for parameter, _ in parameters]
    lines += ["    ) -> None:"]
    lines += [f"        self.{f.attribute} = {value}" for f, (_, value) in zip(fields, parameters, strict=True)]
    return lines
