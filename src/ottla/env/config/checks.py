"""Validators: what a parsed value may be. Each answers None or Kafka's own words for the refusal.

`describe_check` gives the accepted range for the docs and for error lines; it is the validator's `accepts` attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .settings import Check


def _named(check: Check, accepts: str) -> Check:
    check.accepts = accepts  # type: ignore[attr-defined]
    return check


def accepts(check: Check | None) -> str:
    """What a check lets through, for people: `[0,...]`, `one of a, b`; empty when anything goes."""
    return str(getattr(check, "accepts", ""))


def at_least(low: float) -> Check:
    def check(_name: str, value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        return f"Value must be at least {low}" if value < low else None

    return _named(check, f"[{low},...]")


def between(low: float, high: float) -> Check:
    def check(_name: str, value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        if value < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if value > high else None

    return _named(check, f"[{low},...,{high}]")


def one_of(*allowed: str) -> Check:
    def check(_name: str, value: Any) -> str | None:
        return None if value in allowed else f"String must be one of: {', '.join(allowed)}"

    return _named(check, f"one of {', '.join(allowed)}")


def throttled_replicas(name: str, value: Any) -> str | None:
    """`*`, nothing, or `partition:broker,...`."""
    if not value or list(value) == ["*"]:
        return None
    for item in value:
        left, colon, right = item.strip().partition(":")
        if not (colon and left.isascii() and left.isdigit() and right.isascii() and right.isdigit()):
            return (
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
    return None


_named(throttled_replicas, "* or partition:broker,...")


def list_of(allowed: Sequence[str], *, may_be_empty: bool = True) -> Check:
    def check(name: str, value: Any) -> str | None:
        for item in value or ():
            if item not in allowed:
                return f"String must be one of: {', '.join(allowed)}"
        if not value and not may_be_empty:
            return f"Configuration '{name}' must not be empty. Valid values include: [{', '.join(allowed)}]"
        if value is not None and len(set(value)) != len(value):
            return f"Configuration '{name}' values must not be duplicated."
        return None

    return _named(check, f"any of {', '.join(allowed)}")
