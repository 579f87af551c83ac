"""Single-message transforms and predicates with Kafka's names: `transforms: a,b`, `transforms.a.type: InsertField$Value`.

A transform returns a change, or None to drop it. `transforms.a.predicate` (and `negate`) selects the changes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ottla.connect.casts import CASTS, PRECISIONS, TIME_TYPES, cast_value, masked, time_ms, time_value
from ottla.connect.config import under, words
from ottla.connect.connector import Change
from ottla.model.user_error import UserError
from ottla.payloads.java_dates import DatePattern

Transform = Callable[[Change], Change | None]
Settings = Mapping[str, str]


def chain(config: Mapping[str, str]) -> Transform:
    """All transforms of a connector in their order."""
    steps = [_guarded(config, name) for name in words(config, "transforms")]

    def apply(change: Change) -> Change | None:
        current: Change | None = change
        for step in steps:
            if current is None:
                return None
            current = step(current)
        return current

    return apply


def _guarded(config: Settings, name: str) -> Transform:
    settings = under(config, f"transforms.{name}.")
    kind, _, side = settings.get("type", "").rpartition(".")[2].partition("$")
    if kind not in _TRANSFORMS:
        raise UserError(f"transforms.{name}.type {settings.get('type')!r} is none of {', '.join(sorted(_TRANSFORMS))}")
    step = _TRANSFORMS[kind](settings, "key" if side == "Key" else "value")
    if "predicate" not in settings:
        return step
    holds = _predicate(config, settings["predicate"])
    expected = settings.get("negate", "false").lower() != "true"
    return lambda change: step(change) if holds(change) == expected else change


def _predicate(config: Settings, name: str) -> Callable[[Change], bool]:
    settings = under(config, f"predicates.{name}.")
    kind = settings.get("type", "").rpartition(".")[2]
    if kind == "TopicNameMatches":
        pattern = re.compile(settings.get("pattern", ""))
        return lambda change: pattern.fullmatch(change.topic) is not None
    if kind == "HasHeaderKey":
        return lambda change: any(key == settings.get("name") for key, _ in change.headers)
    if kind == "RecordIsTombstone":
        return lambda change: change.value is None
    raise UserError(f"predicates.{name}.type is TopicNameMatches, HasHeaderKey or RecordIsTombstone, not {kind!r}")


def _changed(change: Change, side: str, value: Any) -> Change:
    return replace(change, key=value) if side == "key" else replace(change, value=value)


def _fields(change: Change, side: str) -> dict[str, Any] | None:
    operand = change.key if side == "key" else change.value
    if operand is None or isinstance(operand, dict):
        return None if operand is None else dict(operand)
    raise TypeError(f"the {side} is a {type(operand).__name__} without fields; HoistField gives it one")


def _needed(settings: Settings, kind: str, *names: str) -> list[str]:
    missing = [name for name in names if not settings.get(name)]
    if missing:
        raise UserError(f"{kind}: {' and '.join(missing)} must be set")
    return [settings[name] for name in names]


def _on_fields(function: Callable[[dict[str, Any], Change], dict[str, Any]]) -> Callable[[str], Transform]:
    """A transform of the fields; a tombstone passes, any other value without fields is an error as it is in Kafka."""

    def make(side: str) -> Transform:
        def apply(change: Change) -> Change:
            fields = _fields(change, side)
            return change if fields is None else _changed(change, side, function(fields, change))

        return apply

    return make


def _insert_field(settings: Settings, side: str) -> Transform:
    def insert(fields: dict[str, Any], change: Change) -> dict[str, Any]:
        facts = {
            "topic.field": change.topic,
            "partition.field": change.partition,
            "offset.field": change.offset,
            "timestamp.field": change.timestamp_ms or int(time.time() * 1000),
        }
        for name, value in facts.items():
            if name in settings:
                fields[settings[name].rstrip("!?")] = value
        if "static.field" in settings:
            fields[settings["static.field"].rstrip("!?")] = settings.get("static.value")
        return fields

    return _on_fields(insert)(side)


def _replace_field(settings: Settings, side: str) -> Transform:
    only, without = words(settings, "include"), set(words(settings, "exclude"))
    renames = dict(part.split(":", 1) for part in words(settings, "renames"))

    def shape(fields: dict[str, Any], _: Change) -> dict[str, Any]:
        kept = {name: value for name, value in fields.items() if (not only or name in only) and name not in without}
        return {renames.get(name, name): value for name, value in kept.items()}

    return _on_fields(shape)(side)


def _mask_field(settings: Settings, side: str) -> Transform:
    _needed(settings, "MaskField", "fields")
    names, replacement = words(settings, "fields"), settings.get("replacement")

    def mask(fields: dict[str, Any], _: Change) -> dict[str, Any]:
        return fields | {name: masked(fields.get(name), replacement) for name in names}

    return _on_fields(mask)(side)


def _cast(settings: Settings, side: str) -> Transform:
    _needed(settings, "Cast", "spec")
    casts = [part.split(":", 1) if ":" in part else ["", part] for part in words(settings, "spec")]
    for _, kind in casts:
        if kind not in CASTS:
            raise UserError(f"Cast: {kind!r} is none of {', '.join(CASTS)}")
    if any(name == "" for name, _ in casts):
        if len(casts) > 1:
            raise UserError("Cast: spec is one type for the whole value, or FIELD:TYPE for each field")
        return lambda change: _changed(change, side, cast_value(_operand(change, side), casts[0][1]))

    def cast(fields: dict[str, Any], _: Change) -> dict[str, Any]:
        return fields | {name: cast_value(fields.get(name), kind) for name, kind in casts}

    return _on_fields(cast)(side)


def _operand(change: Change, side: str) -> Any:
    return change.key if side == "key" else change.value


def _timestamp_converter(settings: Settings, side: str) -> Transform:
    target, precision = settings.get("target.type", ""), settings.get("unix.precision", "milliseconds")
    if target not in TIME_TYPES or precision not in PRECISIONS:
        raise UserError(
            f"TimestampConverter: target.type is one of {', '.join(TIME_TYPES)}, unix.precision one of {', '.join(PRECISIONS)}"
        )
    if target == "string":
        _needed(settings, "TimestampConverter", "format")
    pattern = _date_pattern(settings["format"]) if settings.get("format") else None
    field = settings.get("field", "")

    def convert(value: Any) -> Any:
        return None if value is None else time_value(time_ms(value, pattern, precision), target, pattern, precision)

    def of_field(fields: dict[str, Any], _: Change) -> dict[str, Any]:
        return fields | {field: convert(fields.get(field))}

    return (
        _on_fields(of_field)(side) if field else lambda change: _changed(change, side, convert(_operand(change, side)))
    )


def _header_from(settings: Settings, side: str) -> Transform:
    (operation,) = _needed(settings, "HeaderFrom", "operation", "fields", "headers")[:1]
    names, headers = words(settings, "fields"), words(settings, "headers")
    if len(names) != len(headers) or operation not in {"move", "copy"}:
        raise UserError("HeaderFrom: operation is move or copy, and headers has a name for each of fields")

    def apply(change: Change) -> Change:
        fields = _fields(change, side)
        if fields is None:
            return change
        added = [(header, _header(fields.get(name))) for name, header in zip(names, headers, strict=True)]
        kept = {name: value for name, value in fields.items() if operation == "copy" or name not in names}
        return replace(_changed(change, side, kept), headers=[*change.headers, *added])

    return apply


def _header(value: Any) -> bytes | None:
    return None if value is None else str(cast_value(value, "string")).encode()


def _flatten(settings: Settings, side: str) -> Transform:
    delimiter = settings.get("delimiter", ".")

    def flat(fields: dict[str, Any], _: Change) -> dict[str, Any]:
        flattened: dict[str, Any] = {}
        for name, value in fields.items():
            if isinstance(value, dict):
                flattened |= {f"{name}{delimiter}{inner}": inner_value for inner, inner_value in flat(value, _).items()}
            else:
                flattened[name] = value
        return flattened

    return _on_fields(flat)(side)


def _value_to_key(settings: Settings, _: str) -> Transform:
    _needed(settings, "ValueToKey", "fields")
    names = words(settings, "fields")

    def apply(change: Change) -> Change:
        fields = _fields(change, "value")
        return change if fields is None else replace(change, key={name: fields.get(name) for name in names})

    return apply


def _extract_field(settings: Settings, side: str) -> Transform:
    (field,) = _needed(settings, "ExtractField", "field")

    def apply(change: Change) -> Change:
        fields = _fields(change, side)
        return change if fields is None else _changed(change, side, fields.get(field))

    return apply


def _hoist_field(settings: Settings, side: str) -> Transform:
    (field,) = _needed(settings, "HoistField", "field")
    return lambda change: _changed(change, side, {field: _operand(change, side)})


def _regex_router(settings: Settings, _: str) -> Transform:
    regex, replacement = _needed(settings, "RegexRouter", "regex", "replacement")
    try:
        pattern = re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", regex))  # Java's way to name a group
    except re.error as error:
        raise UserError(f"RegexRouter: regex: {error}") from None
    # Java's $1 and ${name} in Python's words; its backslash makes the next letter plain, which Python's doubles.
    template = re.sub(r"\\(.)|\$(?:(\d)|\{(\w+)\})", _group, replacement)

    def apply(change: Change) -> Change:
        match = pattern.fullmatch(change.topic)
        return replace(change, topic=match.expand(template)) if match else change

    return apply


def _group(match: re.Match[str]) -> str:
    plain, number, name = match.groups()
    return f"\\g<{number or name}>" if plain is None else plain.replace("\\", r"\\")


def _timestamp_router(settings: Settings, _: str) -> Transform:
    pattern = _date_pattern(settings.get("timestamp.format", "yyyyMMdd"))
    name = settings.get("topic.format", "${topic}-${timestamp}")

    def apply(change: Change) -> Change:
        stamp = pattern.write(change.timestamp_ms or int(time.time() * 1000))
        return replace(change, topic=name.replace("${topic}", change.topic).replace("${timestamp}", stamp))

    return apply


def _insert_header(settings: Settings, _: str) -> Transform:
    header, literal = _needed(settings, "InsertHeader", "header", "value.literal")
    pair = header, literal.encode()
    return lambda change: replace(change, headers=[*change.headers, pair])


def _drop_headers(settings: Settings, _: str) -> Transform:
    names = set(words(settings, "headers"))
    return lambda change: replace(change, headers=[header for header in change.headers if header[0] not in names])


def _filter(_settings: Settings, _: str) -> Transform:
    return lambda _change: None


_TRANSFORMS: dict[str, Callable[[Settings, str], Transform]] = {
    "Cast": _cast, "DropHeaders": _drop_headers, "ExtractField": _extract_field, "Filter": _filter, "Flatten": _flatten,
    "HeaderFrom": _header_from, "HoistField": _hoist_field, "InsertField": _insert_field, "InsertHeader": _insert_header,
    "MaskField": _mask_field, "RegexRouter": _regex_router, "ReplaceField": _replace_field,
    "TimestampConverter": _timestamp_converter, "TimestampRouter": _timestamp_router, "ValueToKey": _value_to_key,
}  # fmt: skip


def _date_pattern(pattern: str) -> DatePattern:
    try:
        return DatePattern(pattern)
    except ValueError as problem:
        raise UserError(f"the time pattern {pattern!r}: {problem}") from problem
