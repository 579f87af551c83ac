"""Groups that hold markers of exactly-once writes, not positions of a reader: lists, lag and alarms leave them out."""

from __future__ import annotations

import re

MARKER_TOPIC = "__ottla_exactly_once"
MARKER_PREFIX = "ottla-markers-"
_EARLIER = re.compile(r"ottla-(.+-)?([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-topic)?|job-[0-9a-f]{32})-\d+")
"""Groups that earlier versions wrote, one for each task. They expire after an upgrade."""


def writer_client_id(writer: str) -> str:
    """The client id of an exactly-once writer, by which brokers report what it writes: its group shows no topic."""
    return f"ottla-{writer}"


def connector_writer(name: str) -> str:
    return f"connector-{name}"


def is_marker_group(group_id: str) -> bool:
    return group_id.startswith(MARKER_PREFIX) or _EARLIER.fullmatch(group_id) is not None
