"""Tiered storage. Ottla has none: every name is known, checked, and without effect."""

from __future__ import annotations

from ottla.env.config.checks import at_least, between, not_empty
from ottla.env.config.effects import NO_TIERS
from ottla.env.config.settings import BOOLEAN, CLUSTER, DOUBLE, INT, LONG, LONG_MAX, LOW, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class RemoteSettings(Settings):
    __slots__ = ()

    log_local_retention_bytes: int = setting(
        LONG, -2, at_least(-2), "Bytes of a partition kept locally when segments are in the tier.", mode=CLUSTER, effect=NO_TIERS
    )
    log_local_retention_ms: int = setting(
        LONG, -2, at_least(-2), "Time that records are kept locally when segments are in the tier.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_fetch_max_wait_ms: int = setting(
        INT, 500, at_least(1), "Longest wait for a read from the tier.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_list_offsets_request_timeout_ms: int = setting(
        LONG, 30_000, at_least(1), "Longest wait for a tiered offset lookup.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_log_index_file_cache_total_size_bytes: int = setting(
        LONG, 1_073_741_824, at_least(1),
        "Size of the local cache of tiered indexes.", importance=LOW, mode=CLUSTER, effect=NO_TIERS,
    )
    remote_log_index_file_cache_ttl_ms: int = setting(
        LONG, 900_000, at_least(-1), "Life of an entry in that cache.", importance=LOW, effect=NO_TIERS, internal=True
    )
    remote_log_manager_copier_thread_pool_size: int = setting(
        INT, 10, at_least(1), "Threads that copy to the tier.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        LONG, LONG_MAX, at_least(1), "Most bytes per second copied to the tier.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_log_manager_copy_quota_window_num: int = setting(
        INT, 11, at_least(1), "Samples that the copy quota looks back on.", effect=NO_TIERS
    )
    remote_log_manager_copy_quota_window_size_seconds: int = setting(
        INT, 1, at_least(1), "Length of a sample of the copy quota.", effect=NO_TIERS
    )
    remote_log_manager_expiration_thread_pool_size: int = setting(
        INT, 10, at_least(1), "Threads that delete from the tier.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_log_manager_fetch_max_bytes_per_second: int = setting(
        LONG, LONG_MAX, at_least(1), "Most bytes per second read from the tier.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_log_manager_fetch_quota_window_num: int = setting(
        INT, 11, at_least(1), "Samples that the read quota looks back on.", effect=NO_TIERS
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = setting(
        INT, 1, at_least(1), "Length of a sample of the read quota.", effect=NO_TIERS
    )
    remote_log_manager_follower_thread_pool_size: int = setting(
        INT, 2, at_least(1), "Threads for followers of tiered partitions.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_log_manager_task_interval_ms: int = setting(
        LONG, 30_000, at_least(1), "Interval of the search for segments that can move to the tier.", importance=LOW, effect=NO_TIERS
    )
    remote_log_manager_task_retry_backoff_max_ms: int = setting(
        LONG, 30_000, at_least(1),
        "Longest pause before tier work is tried again.", importance=LOW, effect=NO_TIERS, internal=True,
    )
    remote_log_manager_task_retry_backoff_ms: int = setting(
        LONG, 500, at_least(1), "Pause before tier work is tried again.", importance=LOW, effect=NO_TIERS, internal=True
    )
    remote_log_manager_task_retry_jitter: float = setting(
        DOUBLE, 0.2, between(0, 0.5), "Random share of that pause.", importance=LOW, effect=NO_TIERS, internal=True
    )
    remote_log_manager_thread_pool_size: int = setting(INT, 2, at_least(1), "Threads for tier work.", effect=NO_TIERS)
    remote_log_metadata_custom_metadata_max_bytes: int = setting(
        INT, 128, at_least(0), "Largest custom metadata of a tiered segment.", importance=LOW, effect=NO_TIERS
    )
    remote_log_metadata_manager_class_name: str = setting(
        STRING, "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", not_empty,
        "Class that keeps the tier's metadata.", effect=NO_TIERS,
    )
    remote_log_metadata_manager_class_path: str | None = setting(
        STRING, None, None, "Where that class is loaded from.", effect=NO_TIERS
    )
    remote_log_metadata_manager_impl_prefix: str = setting(
        STRING, "rlmm.config.", not_empty, "Prefix of that class's own settings.", effect=NO_TIERS
    )
    remote_log_metadata_manager_listener_name: str | None = setting(
        STRING, None, not_empty, "Listener that the tier's metadata uses.", effect=NO_TIERS
    )
    remote_log_reader_max_pending_tasks: int = setting(
        INT, 100, at_least(1), "Reads from the tier that may wait.", effect=NO_TIERS
    )
    remote_log_reader_threads: int = setting(
        INT, 10, at_least(1), "Threads that read from the tier.", mode=CLUSTER, effect=NO_TIERS
    )
    remote_log_storage_manager_class_name: str | None = setting(
        STRING, None, not_empty, "Class that stores segments in the tier.", effect=NO_TIERS
    )
    remote_log_storage_manager_class_path: str | None = setting(
        STRING, None, None, "Where that class is loaded from.", effect=NO_TIERS
    )
    remote_log_storage_manager_impl_prefix: str = setting(
        STRING, "rsm.config.", not_empty, "Prefix of that class's own settings.", effect=NO_TIERS
    )
    remote_log_storage_system_enable: bool = setting(BOOLEAN, False, None, "Switches the tier on.", effect=NO_TIERS)
# fmt: on
