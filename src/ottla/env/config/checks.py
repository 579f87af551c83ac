"""Validators: what a parsed value may be. Each returns None or a refusal in Kafka's own words.

A check carries two facts beside its verdict. `accepts` describes the accepted values for people. `unique` means that
duplicates are dropped from a list before the check (as in Kafka).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.model.erasures import ENTRY

CLASSIC_CODECS: Final = 5
"""Compression ids of the wire: none, gzip, snappy, lz4, zstd."""


class ValueRefusal(NamedTuple):
    """Why a value is refused. `whole` replaces Kafka's `Invalid value V for configuration N: ` frame; `value` is the
    part of the value that the frame shows, where that is not the whole."""

    why: str
    whole: bool = False
    value: str | None = None


class Check(NamedTuple):
    verdict: Callable[[str, Any], ValueRefusal | None]
    accepts: str
    unique: bool = False

    def __call__(self, name: str, value: Any) -> ValueRefusal | None:
        return self.verdict(name, value)


@cache
def at_least(low: float) -> Check:
    return Check(lambda _, v: ValueRefusal(f"Value must be at least {low}") if v < low else None, f"[{low},...]")


@cache
def between(low: float, high: float) -> Check:
    def verdict(_: str, value: Any) -> ValueRefusal | None:
        if value < low:
            return ValueRefusal(f"Value must be at least {low}")
        return ValueRefusal(f"Value must be no more than {high}") if value > high else None

    return Check(verdict, f"[{low},...,{high}]")


http_address = Check(
    lambda _, v: (
        None
        if not v or v.startswith(("http://", "https://"))
        else ValueRefusal("The address must begin with http:// or https://")
    ),
    "http://... or https://...",
)


def one_of(*allowed: str) -> Check:
    why = f"String must be one of: {', '.join(allowed)}"
    return Check(lambda _, v: None if v in allowed else ValueRefusal(why), f"one of {', '.join(allowed)}")


def one_of_any_case(*allowed: str) -> Check:
    why = f"String must be one of (case insensitive): {', '.join(allowed)}"
    return Check(
        lambda _, v: None if v.upper() in allowed else ValueRefusal(why), f"one of {', '.join(allowed)} in any case"
    )


def list_of(allowed: Sequence[str] = (), *, may_be_empty: bool = True) -> Check:
    """A list without duplicates or empty items; `allowed` limits the items."""
    options = f"[{', '.join(allowed)}]" if allowed else "any non-empty value"

    def verdict(name: str, value: Any) -> ValueRefusal | None:
        if not value and not may_be_empty:
            return ValueRefusal(
                f"Configuration '{name}' must not be empty. Valid values include: {options}", whole=True
            )
        for item in value:
            if not item:
                return ValueRefusal(f"Configuration '{name}' values must not be empty.", whole=True)
            if allowed and item not in allowed:
                return ValueRefusal(f"String must be one of: {', '.join(allowed)}", value=item)
        return None

    words = f"any of {', '.join(allowed)}" if allowed else ("a list" if may_be_empty else "a list, not empty")
    return Check(verdict, words, unique=True)


MAX_FORGOTTEN_CHARACTERS: Final = 256 * 1024


def _forgotten(name: str, value: Any) -> ValueRefusal | None:
    for item in value:
        if ENTRY.fullmatch(item) is None:
            return ValueRefusal(
                "an entry is the key's hash and PARTITION:OFFSET pairs (`ottla topic forget`)", value=item[:80]
            )
    if sum(map(len, value)) > MAX_FORGOTTEN_CHARACTERS:
        return ValueRefusal(
            f"Configuration '{name}' is full: remove the entries that every replica has applied", whole=True
        )
    return None


forgotten_keys: Final = Check(_forgotten, "HASH-PARTITION:OFFSET..., a list", unique=True)

not_empty: Final = Check(lambda _, v: None if v else ValueRefusal("String must be non-empty"), "text, not empty")

gzip_level: Final = Check(
    lambda _, v: None if v == -1 or 1 <= v <= 9 else ValueRefusal("Value must be between 1 and 9 or equal to -1"),
    "[1,...,9] or -1",
)

codec: Final = Check(
    lambda _, v: None if 0 <= v < CLASSIC_CODECS else ValueRefusal(f"Unknown compression type id: {v}", whole=True),
    "0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
)


def java_class(*class_names: str) -> Check:
    """For a plug-in that checks changes or logins of clients: without the plug-in, changes and logins that it refuses
    would pass.
    """
    options = " or ".join(name or "nothing" for name in class_names) or "nothing: remove the line"
    why = "Java classes cannot be loaded here, and ignoring this class could allow what the class refuses"
    return Check(lambda _, v: None if v in class_names else ValueRefusal(why), options)


# Patterns are kept as text: `re` compiles a pattern at its first use, and most starts use none.
_REPLICA: Final = r"([0-9]+:[0-9]+)?"


def _throttled_replicas(name: str, value: Any) -> ValueRefusal | None:
    items = [item.strip() for item in value]
    if "".join(items) == "*" or all(re.fullmatch(_REPLICA, item) for item in items):
        return None
    return ValueRefusal(
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


throttled_replicas: Final = Check(_throttled_replicas, "* or partition:broker,...")

_HOST_PORT: Final = r"(?:[^@\[\]]*://)?\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]+)"


def split_host_port(text: str) -> tuple[str, int] | None:
    """`host:port`, `[::1]:port`; None when it is neither."""
    match = re.fullmatch(_HOST_PORT, text)
    return (match["host"], int(match["port"])) if match and match["host"] else None


def _voters(name: str, value: Any) -> ValueRefusal | None:
    form = "Each entry should be in the form `{id}@{host}:{port}`."
    for entry in value:
        node, at, address = entry.partition("@")
        if not at or "@" in address:
            return ValueRefusal(f"Invalid configuration value for {name}. {form}", whole=True)
        if not re.fullmatch(r"[+-]?[0-9]+", node.strip()):
            return ValueRefusal(f"Failed to parse voter ID as an integer from {node}", whole=True)
        if (parsed := split_host_port(address)) is None:
            return ValueRefusal(
                f"Failed to parse host name from entry {entry} for the configuration {name}. {form}", whole=True
            )
        if parsed[1] > 0xFFFF:
            return ValueRefusal(f"port out of range:{parsed[1]}", whole=True)
    return None


voters: Final = Check(_voters, "id@host:port,...")


def _bootstrap_servers(name: str, value: Any) -> ValueRefusal | None:
    for entry in value:
        if (parsed := split_host_port(entry)) is None:
            form = 'Each entry should be in the form "{host}:{port}"'
            return ValueRefusal(
                f"Failed to parse host name from {entry} for the configuration {name}. {form}", whole=True
            )
        if parsed[1] > 0xFFFF:
            return ValueRefusal(f"port out of range:{parsed[1]}", whole=True)
    return None


bootstrap_servers: Final = Check(_bootstrap_servers, "host:port,...")

_DURATION: Final = r"(?i)P(?=.)(?:[0-9]+D)?(?:T(?=.)(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]{1,9})?S)?)?"


def _offset_reset(name: str, value: Any) -> ValueRefusal | None:
    if value in ("earliest", "latest"):
        return None
    kind, _, duration = value.partition(":")
    if kind == "by_duration" and re.fullmatch(_DURATION, duration):
        return None
    return ValueRefusal(
        f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of the "
        "format 'by_duration:<PnDTnHnMn.nS>'."
    )


offset_reset: Final = Check(_offset_reset, "earliest, latest or by_duration:PnDTnHnMn.nS")
