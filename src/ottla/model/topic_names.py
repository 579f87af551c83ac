"""Which names a topic may have, in Kafka's words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.model.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_topic_name(name: str) -> bool:
    return _problem(name) is None


def check_topic_name(name: str, what: str = "Topic name") -> None:
    """KafkaError(INVALID_TOPIC_EXCEPTION) for a name that no topic can have."""
    problem = _problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{what} is invalid: {problem}")


def _problem(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def has_collision_chars(name: str) -> bool:
    """Metric names turn dots into underscores, so two topics may not differ in these alone."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    return name.replace(".", "_")


def collision_keys(existing: Iterable[str]) -> dict[str, str]:
    """Collision key -> the first topic that has it."""
    first_topics: dict[str, str] = {}
    for name in existing:
        if has_collision_chars(name):
            first_topics.setdefault(collision_key(name), name)
    return first_topics
