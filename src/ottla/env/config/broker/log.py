"""The log: directories, segments, retention, flushing, compaction. Most are defaults for topics."""

from __future__ import annotations

from ottla.env.config.checks import at_least, between, gzip_level, list_of, one_of
from ottla.env.config.effects import FIXED_READS, NO_REPORT_LIMIT, NO_THREADS
from ottla.env.config.settings import (
    BOOLEAN,
    CLUSTER,
    DOUBLE,
    DOUBLE_MAX,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    PER_BROKER,
    STRING,
    Settings,
    setting,
)


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class LogSettings(Settings):
    __slots__ = ()

    log_dir: tuple[str, ...] = setting(
        LIST, ("/tmp/kafka-logs",), list_of(may_be_empty=False),  # noqa: S108 - Kafka's own default
        "Directory of the data, when log.dirs is not set.", importance=HIGH,
    )
    log_dirs: tuple[str, ...] | None = setting(
        LIST, None, list_of(may_be_empty=False),
        "Directories of the data; partitions are spread over them.", importance=HIGH,
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        LIST, (), list_of(), "Directories that receive no new partitions; * means all.", mode=PER_BROKER
    )
    log_dir_failure_timeout_ms: int = setting(
        LONG, 30_000, at_least(1),
        "A broker stops if it cannot report a failed directory within this time.", importance=LOW, effect=NO_REPORT_LIMIT,
    )
    log_segment_bytes: int = setting(
        INT, 1_073_741_824, at_least(1_048_576),
        "Size at which a new segment is started.", importance=HIGH, mode=CLUSTER,
    )
    log_roll_ms: int | None = setting(
        LONG, None, None, "Age at which a segment is closed; log.roll.hours unless set.", importance=HIGH, mode=CLUSTER
    )
    log_roll_hours: int = setting(INT, 168, at_least(1), "Age in hours at which a segment is closed.", importance=HIGH)
    log_roll_jitter_ms: int | None = setting(
        LONG, None, None,
        "Random time subtracted from log.roll.ms; log.roll.jitter.hours unless set.", importance=HIGH, mode=CLUSTER,
    )
    log_roll_jitter_hours: int = setting(INT, 0, at_least(0), "Random hours subtracted from the roll time.", importance=HIGH)
    log_retention_ms: int | None = setting(
        LONG, None, None,
        "Age at which a segment is deleted; -1 never; before minutes and hours.", importance=HIGH, mode=CLUSTER,
    )
    log_retention_minutes: int | None = setting(
        INT, None, None, "Age in minutes at which a segment is deleted; before hours.", importance=HIGH
    )
    log_retention_hours: int = setting(INT, 168, None, "Age in hours at which a segment is deleted.", importance=HIGH)
    log_retention_bytes: int = setting(
        LONG, -1, None, "Size of a partition above which old segments are deleted; -1 sets no limit.", importance=HIGH, mode=CLUSTER
    )
    log_retention_check_interval_ms: int = setting(LONG, 300_000, at_least(1), "Interval of the search for old segments.")
    log_cleanup_policy: tuple[str, ...] = setting(
        LIST, ("delete",), list_of(("compact", "delete")),
        "What happens to old segments: delete, compact, or both.", mode=CLUSTER,
    )
    log_index_size_max_bytes: int = setting(
        INT, 10_485_760, at_least(4), "Size of a segment's offset index.", mode=CLUSTER
    )
    log_index_interval_bytes: int = setting(
        INT, 4096, at_least(0), "Bytes of log between two index entries.", mode=CLUSTER
    )
    log_flush_interval_messages: int = setting(
        LONG, LONG_MAX, at_least(1),
        "Sync to disk after this many records of a partition.", importance=HIGH, mode=CLUSTER,
    )
    log_flush_interval_ms: int | None = setting(
        LONG, None, None,
        "Sync to disk when a record is this old; the scheduler's interval unless set.", importance=HIGH, mode=CLUSTER,
    )
    log_flush_scheduler_interval_ms: int = setting(
        LONG, LONG_MAX, None, "How often it is checked whether a log must be synced.", importance=HIGH
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        INT, 60_000, at_least(0), "Interval of writes of the recovery points.", importance=HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        INT, 60_000, at_least(0), "Interval of writes of the log start offsets.", importance=HIGH
    )
    log_segment_delete_delay_ms: int = setting(
        LONG, 60_000, at_least(0),
        "Wait between dropping a segment and removing its files.", importance=HIGH, mode=CLUSTER,
    )
    log_preallocate: bool = setting(BOOLEAN, False, None, "Reserve a new segment's size on disk at once.", mode=CLUSTER)
    log_initial_task_delay_ms: int = setting(
        LONG, 30_000, at_least(0),
        "Wait after the start before background work on logs begins.", importance=LOW, internal=True,
    )
    log_message_timestamp_type: str = setting(
        STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps records: CreateTime or LogAppendTime.", mode=CLUSTER,
    )
    log_message_timestamp_before_max_ms: int = setting(
        LONG, LONG_MAX, at_least(0), "How far a client's timestamp may lie in the past.", mode=CLUSTER
    )
    log_message_timestamp_after_max_ms: int = setting(
        LONG, 3_600_000, at_least(0), "How far a client's timestamp may lie in the future.", mode=CLUSTER
    )
    message_max_bytes: int = setting(
        INT, 1_048_588, at_least(0), "Largest batch accepted, after compression.", importance=HIGH, mode=CLUSTER
    )
    compression_type: str = setting(
        STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "Codec of stored batches; producer keeps the client's.", importance=HIGH, mode=CLUSTER,
    )
    compression_gzip_level: int = setting(INT, -1, gzip_level, "Gzip level when the broker recompresses.", mode=CLUSTER)
    compression_lz4_level: int = setting(
        INT, 9, between(1, 17), "Lz4 level when the broker recompresses.", mode=CLUSTER
    )
    compression_zstd_level: int = setting(
        INT, 3, between(-131_072, 22), "Zstd level when the broker recompresses.", mode=CLUSTER
    )
    num_recovery_threads_per_data_dir: int = setting(
        INT, 2, at_least(1),
        "Threads that recover logs at the start and flush them at the end.",
        importance=HIGH, mode=CLUSTER, effect=NO_THREADS,
    )
    log_cleaner_enable: bool = setting(BOOLEAN, True, None, "Whether compaction runs at all.")
    log_cleaner_threads: int = setting(INT, 1, at_least(0), "Threads that compact.", mode=CLUSTER, effect=NO_THREADS)
    log_cleaner_backoff_ms: int = setting(
        LONG, 15_000, at_least(0), "Pause of the cleaner when nothing is dirty.", mode=CLUSTER
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        LONG, 134_217_728, None, "Memory for the key map of all cleaners.", mode=CLUSTER
    )
    log_cleaner_io_buffer_size: int = setting(
        INT, 524_288, at_least(0), "Memory for reading and writing of all cleaners.", mode=CLUSTER, effect=FIXED_READS,
    )
    log_cleaner_io_buffer_load_factor: float = setting(DOUBLE, 0.9, None, "How full the key map may get.", mode=CLUSTER)
    log_cleaner_io_max_bytes_per_second: float = setting(
        DOUBLE, DOUBLE_MAX, None, "Most bytes per second that compaction reads and writes.", mode=CLUSTER
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        DOUBLE, 0.5, between(0, 1), "Share of uncompacted bytes above which a log is compacted.", mode=CLUSTER
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        LONG, 0, at_least(0), "A record stays uncompacted at least this long.", mode=CLUSTER
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        LONG, LONG_MAX, at_least(1), "A record is compacted at the latest after this time.", mode=CLUSTER
    )
    log_cleaner_delete_retention_ms: int = setting(
        LONG, 86_400_000, at_least(0), "How long tombstones stay readable.", mode=CLUSTER
    )
# fmt: on
