"""Compatibility levels: which earlier versions a new one is held against, and in which direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ottla.registry.errors import invalid_compatibility
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.parsed import Incompatibility, ParsedSchema

_Earlier = TypeVar("_Earlier")
NONE = "NONE"
BACKWARD = "BACKWARD"
LEVELS = (
    NONE, BACKWARD, "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip


class Earlier(NamedTuple):
    version: int
    schema: ParsedSchema


class CompatibilityFinding(NamedTuple):
    version: int
    """The earlier version that it is about."""
    direction: str
    """BACKWARD: the new schema reads the old data. FORWARD: the old schema reads the new data."""
    reason: Incompatibility


def level_named(name: object) -> str:
    """A level in any case; 42203 otherwise."""
    level = name.upper() if isinstance(name, str) else ""
    if level not in LEVELS:
        raise invalid_compatibility()
    return level


def needed(level: str, earlier: Sequence[_Earlier]) -> Sequence[_Earlier]:
    """Those of `earlier`, in order of version, that the level compares with."""
    if level == NONE:
        return ()
    return earlier if level.endswith("_TRANSITIVE") else earlier[-1:]


def check(level: str, schema: ParsedSchema, earlier: Sequence[Earlier]) -> list[CompatibilityFinding]:
    """`earlier` in order of version. All findings of the newest version that has any."""
    for version, other in reversed(needed(level, earlier)):
        findings = against(level, schema, version, other, Budget())
        if findings:
            return findings
    return []


def against(
    level: str, schema: ParsedSchema, version: int, other: ParsedSchema, budget: Budget
) -> list[CompatibilityFinding]:
    """Why the schema and one earlier version do not go together; TooComplex when the budget does not suffice."""
    if schema.schema_type != other.schema_type:
        text = f"the schema is {schema.schema_type}, version {version} is {other.schema_type}"
        return [CompatibilityFinding(version, BACKWARD, Incompatibility("SCHEMA_TYPE_CHANGED", "/", text))]
    findings = []
    if level.startswith(("BACKWARD", "FULL")):
        findings += [
            CompatibilityFinding(version, BACKWARD, reason) for reason in schema.incompatibilities(other, budget)
        ]
    if level.startswith(("FORWARD", "FULL")):
        findings += [
            CompatibilityFinding(version, "FORWARD", reason) for reason in other.incompatibilities(schema, budget)
        ]
    return findings


def shown(findings: Sequence[CompatibilityFinding], level: str) -> list[str]:
    """As Confluent lists them: each reason, then what it was held against."""
    if not findings:
        return []
    lines = [f"{finding.reason.shown()[:-1]}, direction:'{finding.direction}'}}" for finding in findings]
    return [*lines, f"{{oldSchemaVersion: {findings[0].version}}}", f"{{compatibility: '{level}'}}"]
