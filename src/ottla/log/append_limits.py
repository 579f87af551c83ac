"""The topic settings that an append compares with, ready for use: one object for each value of the settings."""

from __future__ import annotations

from ottla.env.config import TopicConfig
from ottla.log.validation import opaque_limit


class AppendLimits:
    __slots__ = (
        "flush_messages",
        "index_bytes",
        "index_interval",
        "opaque_bytes",
        "segment_bytes",
        "segment_ms",
        "timestamp_after_max_ms",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.segment_bytes = config.internal_segment_bytes or config.segment_bytes
        self.segment_ms = config.segment_ms
        self.flush_messages = config.flush_messages
        self.index_bytes = config.segment_index_bytes
        self.index_interval = config.index_interval_bytes
        self.opaque_bytes = opaque_limit(config)
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
