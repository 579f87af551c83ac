"""Single-message transforms and predicates with Kafka's names: `transforms: a,b`, `transforms.a.type: InsertField$Value`.

A transform takes a change and gives a change, or None to drop it. `transforms.a.predicate` (and `negate`) says for which.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ottla.connect.config import words
from ottla.connect.connector import Change
from ottla.tables.topics import TableError

Transform = Callable[[Change], Change | None]
Settings = Mapping[str, str]
_CASTS: dict[str, Callable[[Any], Any]] = {
    "int8": int, "int16": int, "int32": int, "int64": int, "float32": float, "float64": float, "string": str,
    "boolean": lambda value: str(value).lower() in {"true", "1"},
}  # fmt: skip


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


def _under(config: Settings, prefix: str) -> dict[str, str]:
    return {name[len(prefix) :]: value for name, value in config.items() if name.startswith(prefix)}


def _guarded(config: Settings, name: str) -> Transform:
    settings = _under(config, f"transforms.{name}.")
    kind, _, side = settings.get("type", "").rpartition(".")[2].partition("$")
    if kind not in _TRANSFORMS:
        raise TableError(f"transforms.{name}.type {settings.get('type')!r} is none of {', '.join(sorted(_TRANSFORMS))}")
    step = _TRANSFORMS[kind](settings, "key" if side == "Key" else "value")
    if "predicate" not in settings:
        return step
    holds = _predicate(config, settings["predicate"])
    wanted = settings.get("negate", "false").lower() != "true"
    return lambda change: step(change) if holds(change) == wanted else change


def _predicate(config: Settings, name: str) -> Callable[[Change], bool]:
    settings = _under(config, f"predicates.{name}.")
    kind = settings.get("type", "").rpartition(".")[2]
    if kind == "TopicNameMatches":
        pattern = re.compile(settings.get("pattern", ""))
        return lambda change: pattern.fullmatch(change.topic) is not None
    if kind == "HasHeaderKey":
        return lambda change: any(key == settings.get("name") for key, _ in change.headers)
    if kind == "RecordIsTombstone":
        return lambda change: change.value is None
    raise TableError(f"predicates.{name}.type is TopicNameMatches, HasHeaderKey or RecordIsTombstone, not {kind!r}")


def _changed(change: Change, side: str, value: Any) -> Change:
    return replace(change, key=value) if side == "key" else replace(change, value=value)


def _fields(change: Change, side: str) -> dict[str, Any] | None:
    found = change.key if side == "key" else change.value
    return dict(found) if isinstance(found, dict) else None


def _on_fields(function: Callable[[dict[str, Any], Change], dict[str, Any]]) -> Callable[[str], Transform]:
    """A transform of the fields; values without fields pass."""

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
    masked = set(words(settings, "fields"))

    def mask(fields: dict[str, Any], _: Change) -> dict[str, Any]:
        for name in masked & set(fields):
            value = fields[name]
            fields[name] = settings.get(
                "replacement", "" if isinstance(value, str) else 0 if not isinstance(value, bool) else False
            )
        return fields

    return _on_fields(mask)(side)


def _cast(settings: Settings, side: str) -> Transform:
    wanted = [part.split(":", 1) if ":" in part else ["", part] for part in words(settings, "spec")]
    for _, kind in wanted:
        if kind not in _CASTS:
            raise TableError(f"Cast: {kind!r} is none of {', '.join(_CASTS)}")

    def cast(fields: dict[str, Any], _: Change) -> dict[str, Any]:
        for name, kind in wanted:
            if fields.get(name) is not None:
                fields[name] = _CASTS[kind](fields[name])
        return fields

    return _on_fields(cast)(side)


def _flatten(settings: Settings, side: str) -> Transform:
    delimiter = settings.get("delimiter", ".")

    def flat(fields: dict[str, Any], _: Change) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in fields.items():
            if isinstance(value, dict):
                found |= {f"{name}{delimiter}{inner}": one for inner, one in flat(value, _).items()}
            else:
                found[name] = value
        return found

    return _on_fields(flat)(side)


def _value_to_key(settings: Settings, _: str) -> Transform:
    names = words(settings, "fields")

    def apply(change: Change) -> Change:
        fields = _fields(change, "value")
        return change if fields is None else replace(change, key={name: fields.get(name) for name in names})

    return apply


def _extract_field(settings: Settings, side: str) -> Transform:
    def apply(change: Change) -> Change:
        fields = _fields(change, side)
        return change if fields is None else _changed(change, side, fields.get(settings.get("field", "")))

    return apply


def _hoist_field(settings: Settings, side: str) -> Transform:
    return lambda change: _changed(
        change, side, {settings.get("field", "value"): change.key if side == "key" else change.value}
    )


def _regex_router(settings: Settings, _: str) -> Transform:
    missing = [name for name in ("regex", "replacement") if name not in settings]
    if missing:
        raise TableError(f"RegexRouter: {' and '.join(missing)} must be set")
    try:
        pattern = re.compile(settings["regex"])
    except re.error as error:
        raise TableError(f"RegexRouter: regex: {error}") from None
    template = re.sub(r"\$(\d)", r"\\\1", settings["replacement"])

    def apply(change: Change) -> Change:
        match = pattern.fullmatch(change.topic)
        return replace(change, topic=match.expand(template)) if match else change

    return apply


def _timestamp_router(settings: Settings, _: str) -> Transform:
    form = settings.get("timestamp.format", "yyyyMMdd")
    for java, python in (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S")):
        form = form.replace(java, python)
    name = settings.get("topic.format", "${topic}-${timestamp}")

    def apply(change: Change) -> Change:
        stamp = time.strftime(form, time.gmtime((change.timestamp_ms or time.time() * 1000) / 1000))
        return replace(change, topic=name.replace("${topic}", change.topic).replace("${timestamp}", stamp))

    return apply


def _insert_header(settings: Settings, _: str) -> Transform:
    pair = settings.get("header", ""), settings.get("value.literal", "").encode()
    return lambda change: replace(change, headers=[*change.headers, pair])


def _drop_headers(settings: Settings, _: str) -> Transform:
    names = set(words(settings, "headers"))
    return lambda change: replace(change, headers=[one for one in change.headers if one[0] not in names])


def _filter(_settings: Settings, _: str) -> Transform:
    return lambda _change: None


_TRANSFORMS: dict[str, Callable[[Settings, str], Transform]] = {
    "Cast": _cast, "DropHeaders": _drop_headers, "ExtractField": _extract_field, "Filter": _filter, "Flatten": _flatten,
    "HoistField": _hoist_field, "InsertField": _insert_field, "InsertHeader": _insert_header, "MaskField": _mask_field,
    "RegexRouter": _regex_router, "ReplaceField": _replace_field, "TimestampRouter": _timestamp_router,
    "ValueToKey": _value_to_key,
}  # fmt: skip
