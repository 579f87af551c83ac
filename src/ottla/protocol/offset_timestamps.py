"""Timestamps of ListOffsets that ask for a place in the log instead of a time (Kafka's ListOffsetsRequest)."""

from __future__ import annotations

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
