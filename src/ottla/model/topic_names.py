"""Which names a topic may have, and why not."""

from __future__ import annotations

import re

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """What is wrong with `name` in Kafka's words, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def collision_key(name: str) -> str:
    """Names that differ only in '.' and '_' collide in metric names."""
    return name.replace(".", "_")
