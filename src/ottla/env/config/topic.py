"""Topic-level settings: the table that CreateTopics, AlterConfigs and the log read.

A topic's effective value is its own override, else the server property named first in `synonyms` that is set, else the
default (`overrides.resolve_topic_config`).
"""

from __future__ import annotations

from typing import Final

from .checks import at_least, between, forgotten_keys, gzip_level, list_of, one_of, throttled_replicas
from .effects import NO_TIERS
from .settings import (
    BOOLEAN,
    DAY_MS,
    DOUBLE,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    Settings,
    Synonym,
    setting,
    slots_of,
)

_COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _from(*names: str | tuple[str, int]) -> tuple[Synonym, ...]:
    return tuple(Synonym(name) if isinstance(name, str) else Synonym(*name) for name in names)


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class TopicConfigSettings(Settings):
    __slots__ = ()

    cleanup_policy: frozenset[str] = setting(
        LIST,
        ("delete",),
        list_of(("compact", "delete")),
        "What happens to old segments: delete them, keep the last record per key (compact), or both.",
        synonyms=_from("log.cleanup.policy"),
        convert=frozenset,
    )
    compression_gzip_level: int = setting(
        INT, -1, gzip_level, "Gzip level when the broker recompresses; -1 is gzip's own default.",
        synonyms=_from("compression.gzip.level"),
    )
    compression_lz4_level: int = setting(
        INT, 9, between(1, 17), "Lz4 level when the broker recompresses.", synonyms=_from("compression.lz4.level")
    )
    compression_type: str = setting(
        STRING, "producer", one_of(*_COMPRESSIONS), "Codec of the stored batches; producer keeps what the client sent.",
        synonyms=_from("compression.type"),
    )
    compression_zstd_level: int = setting(
        INT, 3, between(-131072, 22), "Zstd level when the broker recompresses.",
        synonyms=_from("compression.zstd.level"),
    )
    delete_retention_ms: int = setting(
        LONG, DAY_MS, at_least(0), "How long a compacted topic keeps tombstones readable.",
        synonyms=_from("log.cleaner.delete.retention.ms"),
    )
    file_delete_delay_ms: int = setting(
        LONG, 60_000, at_least(0), "Wait between removing a segment from the log and deleting its files.",
        synonyms=_from("log.segment.delete.delay.ms"),
    )
    flush_messages: int = setting(
        LONG, LONG_MAX, at_least(1), "Sync to disk after this many records; 1 syncs every append.",
        synonyms=_from("log.flush.interval.messages"),
    )
    flush_ms: int = setting(
        LONG, LONG_MAX, at_least(0), "Sync to disk when the oldest unsynced record is this old.",
        synonyms=_from("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST, (), throttled_replicas, "Follower replicas whose replication traffic is throttled."
    )
    index_interval_bytes: int = setting(
        INT, 4096, at_least(0), "Bytes of log between two entries of the offset index.",
        synonyms=_from("log.index.interval.bytes"),
    )
    internal_segment_bytes: int | None = setting(
        INT, None, None, "Segment size below the official minimum, for tests.", internal=True
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST, (), throttled_replicas, "Leader replicas whose replication traffic is throttled."
    )
    local_retention_bytes: int = setting(
        LONG, -2, at_least(-2), "Bytes of a partition kept locally when segments are in the tier; -2 follows retention.bytes.",
        synonyms=_from("log.local.retention.bytes"), effect=NO_TIERS,
    )
    local_retention_ms: int = setting(
        LONG, -2, at_least(-2), "Time that records are kept locally when segments are in the tier; -2 follows retention.ms.",
        synonyms=_from("log.local.retention.ms"), effect=NO_TIERS,
    )
    max_compaction_lag_ms: int = setting(
        LONG, LONG_MAX, at_least(1), "A record is compacted at the latest after this time, however clean the log.",
        synonyms=_from("log.cleaner.max.compaction.lag.ms"),
    )
    max_message_bytes: int = setting(
        INT, 1_048_588, at_least(0), "Largest batch accepted, after compression.", synonyms=_from("message.max.bytes")
    )
    message_timestamp_after_max_ms: int = setting(
        LONG, HOUR_MS, at_least(0), "How far a CreateTime timestamp may be ahead of the broker's clock.",
        synonyms=_from("log.message.timestamp.after.max.ms"),
    )
    message_timestamp_before_max_ms: int = setting(
        LONG, LONG_MAX, at_least(0), "How far a CreateTime timestamp may be behind the broker's clock.",
        synonyms=_from("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_type: str = setting(
        STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), "Whose clock stamps a record: client or broker.",
        synonyms=_from("log.message.timestamp.type"),
    )
    min_cleanable_dirty_ratio: float = setting(
        DOUBLE, 0.5, between(0, 1), "Share of uncompacted bytes above which a log is compacted.",
        synonyms=_from("log.cleaner.min.cleanable.ratio"),
    )
    min_compaction_lag_ms: int = setting(
        LONG, 0, at_least(0), "A record stays uncompacted at least this long.",
        synonyms=_from("log.cleaner.min.compaction.lag.ms"),
    )
    min_insync_replicas: int = setting(
        INT, 1, at_least(1), "Replicas that must be in sync for acks=all to be accepted.",
        synonyms=_from("min.insync.replicas"),
    )
    preallocate: bool = setting(
        BOOLEAN, False, None, "Reserve a new segment's full size on disk at once.", synonyms=_from("log.preallocate")
    )
    remote_log_copy_disable: bool = setting(
        BOOLEAN, False, None, "Make the tier of this topic read-only.", effect=NO_TIERS
    )
    remote_log_delete_on_disable: bool = setting(
        BOOLEAN, False, None, "Delete tiered data when the tier is switched off.", effect=NO_TIERS
    )
    remote_storage_enable: bool = setting(
        BOOLEAN, False, None, "Move old segments of this topic to a remote tier.", effect=NO_TIERS
    )
    retention_bytes: int = setting(
        LONG, -1, None, "Size of a partition above which old segments are deleted; -1 sets no limit.",
        synonyms=_from("log.retention.bytes"),
    )
    retention_ms: int = setting(
        LONG, 7 * DAY_MS, at_least(-1), "Age at which a segment is deleted; -1 keeps it for ever.",
        synonyms=_from("log.retention.ms", ("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)),
    )
    segment_bytes: int = setting(
        INT, 1 << 30, at_least(1 << 20), "Size at which a new segment is started.", synonyms=_from("log.segment.bytes")
    )
    segment_index_bytes: int = setting(
        INT, 10 << 20, at_least(4), "Size of a segment's offset index; a full index starts a new segment.",
        synonyms=_from("log.index.size.max.bytes"),
    )
    segment_jitter_ms: int = setting(
        LONG, 0, at_least(0), "Random time subtracted from segment.ms so that topics do not roll together.",
        synonyms=_from("log.roll.jitter.ms", ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_ms: int = setting(
        LONG, 7 * DAY_MS, at_least(1), "Age at which a segment is closed even if it is not full.",
        synonyms=_from("log.roll.ms", ("log.roll.hours", HOUR_MS)),
    )
    unclean_leader_election_enable: bool = setting(
        BOOLEAN, False, None, "Allow a replica that is not in sync to become leader; records can be lost.",
        synonyms=_from("unclean.leader.election.enable"),
    )

    # Ottla's own: shown by DescribeConfigs only where they are set, so that a topic looks as Kafka's does.
    ottla_validate_records: bool = setting(
        BOOLEAN, False, None,
        "Whether records inside produced batches are validated as in Apache Kafka.",
        synonyms=_from("ottla.validate.records"), internal=True, undeclared=True,
    )
    ottla_schema_validation: str = setting(
        STRING, "off", one_of("off", "refuse", "quarantine"),
        "Treatment of records that do not match their schema: accept, refuse, or quarantine.",
        internal=True, undeclared=True,
    )
    ottla_schema_validation_fields: tuple[str, ...] = setting(
        LIST, ("value",), list_of(("key", "value")), "Which parts of a record carry a schema's id and are checked.",
        internal=True, undeclared=True,
    )
    ottla_schema_validation_context: str = setting(
        STRING, "", None, "The registry's context of the schema ids in the records; empty: the default context.",
        internal=True, undeclared=True,
    )
    ottla_schema_quarantine_topic: str = setting(
        STRING, "", None, "Topic for quarantined records; the topic's name with .quarantine when empty.",
        internal=True, undeclared=True,
    )
    ottla_encryption_forget: tuple[str, ...] = setting(
        LIST, (), forgotten_keys,
        "Keys whose values are erased, and up to which offsets; `ottla topic forget` adds to it.",
        internal=True, undeclared=True,
    )
# fmt: on


class TopicConfig(TopicConfigSettings):
    """The effective settings of one topic. `TopicConfig()` has Kafka's defaults."""

    __slots__ = slots_of(TopicConfigSettings)

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy
