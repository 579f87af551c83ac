"""Kafka's message schemas as facts: names, types, versions, defaults. Their prose is left behind."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

ALWAYS = 0x7FFF


@dataclass(frozen=True)
class Versions:
    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


NONE = Versions(0, -1)


def parse_versions(text: str | None) -> Versions:
    if text is None or text in ("none", ""):
        return NONE
    if text.endswith("+"):
        return Versions(int(text[:-1]), ALWAYS)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: str | None
    flexible: Versions | None
    inline: tuple[Field, ...]

    @property
    def attribute(self) -> str:
        return snake(self.name)

    @property
    def element(self) -> str:
        return self.type[2:] if self.is_array else self.type

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def is_struct(self) -> bool:
        """Of a struct, or an array of them."""
        return self.element[0].isupper()


@dataclass(frozen=True)
class Schema:
    name: str
    kind: str
    api_key: int
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]
    listeners: tuple[str, ...]
    unstable: bool
    structs: dict[str, tuple[Field, ...]] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return snake(self.name)


def snake(name: str) -> str:
    text = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    return text.lower()


def _field(raw: dict[str, object]) -> Field:
    default = raw.get("default")
    return Field(
        name=str(raw["name"]),
        type=str(raw["type"]),
        versions=parse_versions(str(raw.get("versions", raw.get("taggedVersions")))),
        nullable=parse_versions(str(raw.get("nullableVersions", "none"))),
        tagged=parse_versions(str(raw.get("taggedVersions", "none"))),
        tag=int(str(raw.get("tag", -1))),
        default=None if default is None else str(default),
        flexible=parse_versions(str(raw["flexibleVersions"])) if "flexibleVersions" in raw else None,
        inline=tuple(_field(child) for child in raw.get("fields", ())),  # type: ignore[attr-defined]
    )


def _collect(fields: tuple[Field, ...], into: dict[str, tuple[Field, ...]]) -> None:
    """Inner structs before outer ones, so that the generated module reads from small to large."""
    for item in fields:
        if item.inline:
            _collect(item.inline, into)
            into.setdefault(item.element, item.inline)


def load(path: Path) -> Schema:
    """One schema file. Tiered storage numbers its records as the cluster's metadata does, and calls them the same type;
    only the folder tells them apart.
    """
    text = re.sub(r"(?m)^\s*//.*$|/\*.*?\*/", "", path.read_text("utf-8"))
    text = re.sub(r'(?m)(?<=[,{\["\d])\s+//[^"\n]*$', "", text)
    raw = json.loads(text)
    fields = tuple(_field(item) for item in raw.get("fields", ()))
    structs: dict[str, tuple[Field, ...]] = {}
    for shared in raw.get("commonStructs", ()):
        inner = tuple(_field(item) for item in shared["fields"])
        _collect(inner, structs)
        structs[shared["name"]] = inner
    _collect(fields, structs)
    return Schema(
        name=raw["name"],
        kind="remote-log" if raw["type"] == "metadata" and path.parent.name != "metadata" else raw["type"],
        api_key=int(raw.get("apiKey", -1)),
        versions=parse_versions(raw["validVersions"]),
        flexible=parse_versions(raw.get("flexibleVersions")),
        fields=fields,
        listeners=tuple(raw.get("listeners", ())),
        unstable=bool(raw.get("latestVersionUnstable", False)),
        structs=structs,
    )


def load_all(folder: Path) -> list[Schema]:
    """Every schema below `folder` that has at least one valid version, sorted by name."""
    schemas = [load(path) for path in folder.rglob("*.json")]
    return sorted((s for s in schemas if s.versions != NONE), key=lambda s: s.name)
