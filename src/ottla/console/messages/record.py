"""A message as the console holds it: bytes and where they stood, apart from any client library."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

SHOWN_HEADERS = 200
"""Of one record, on a page. A record of 1 MB may have half a million headers."""
TIMESTAMP_KINDS = {1: "CreateTime", 2: "LogAppendTime"}


@dataclass(frozen=True, slots=True)
class BrowsedRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_kind: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    more_headers: int = 0
    """Headers of the record that are left out."""

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + sum(len(n) + len(v or b"") for n, v in self.headers)

    @property
    def time_text(self) -> str:
        return time_text(self.timestamp_ms)


def from_message(message: Any, max_headers: int | None = SHOWN_HEADERS) -> BrowsedRecord:
    """Of a confluent_kafka.Message that is not an error. `max_headers` None: all headers."""
    kind, timestamp_ms = message.timestamp()
    headers = message.headers() or ()
    return BrowsedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp_ms,
        TIMESTAMP_KINDS.get(kind, "none"),
        message.key(),
        message.value(),
        tuple(headers[:max_headers]),
        max(0, len(headers) - (len(headers) if max_headers is None else max_headers)),
    )


def time_text(timestamp_ms: int) -> str:
    """UTC, to the millisecond; a dash where there is none or it is out of this world."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"
