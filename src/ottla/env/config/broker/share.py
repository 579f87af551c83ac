"""Share groups and the coordinator of their state."""

from __future__ import annotations

from ottla.env.config.checks import at_least, between, codec, list_of
from ottla.env.config.effects import FIXED_READS, NO_JAVA, NO_LINGER, NO_THREADS
from ottla.env.config.settings import CLUSTER, HIGH, INT, LIST, LOW, SHORT, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class ShareSettings(Settings):
    __slots__ = ()

    group_share_session_timeout_ms: int = setting(
        INT, 45_000, at_least(1), "A share group removes a member that sends no heartbeat for this long."
    )
    group_share_min_session_timeout_ms: int = setting(INT, 45_000, at_least(1), "Smallest share.session.timeout.ms that a group may set.")
    group_share_max_session_timeout_ms: int = setting(INT, 60_000, at_least(1), "Largest share.session.timeout.ms that a group may set.")
    group_share_heartbeat_interval_ms: int = setting(
        INT, 5000, at_least(1), "Interval of heartbeats of share group members."
    )
    group_share_min_heartbeat_interval_ms: int = setting(INT, 5000, at_least(1), "Smallest share.heartbeat.interval.ms that a group may set.")
    group_share_max_heartbeat_interval_ms: int = setting(
        INT, 15_000, at_least(1), "Largest share.heartbeat.interval.ms that a group may set."
    )
    group_share_assignment_interval_ms: int = setting(
        INT, 1000, at_least(0), "Shortest time between two assignments of a share group.", mode=CLUSTER
    )
    group_share_min_assignment_interval_ms: int = setting(INT, 0, at_least(0), "Smallest share.assignment.interval.ms that a group may set.")
    group_share_max_assignment_interval_ms: int = setting(
        INT, 15_000, at_least(0), "Largest share.assignment.interval.ms that a group may set."
    )
    group_share_assignors: tuple[str, ...] = setting(
        LIST, ("simple",), list_of(may_be_empty=False), "Server-side assignors of share groups."
    )
    group_share_max_size: int = setting(INT, 200, between(1, 1000), "Most members of a share group.")
    group_share_max_share_sessions: int = setting(INT, 2000, at_least(1), "Most share sessions per broker.")
    group_share_delivery_count_limit: int = setting(
        INT, 5, between(2, 10), "Most deliveries of a record before the record is archived."
    )
    group_share_min_delivery_count_limit: int = setting(INT, 2, between(2, 5), "Smallest share.delivery.count.limit that a group may set.")
    group_share_max_delivery_count_limit: int = setting(INT, 10, between(5, 25), "Largest share.delivery.count.limit that a group may set.")
    group_share_partition_max_record_locks: int = setting(
        INT, 2000, between(100, 10_000), "Records of a share-partition that may be in flight."
    )
    group_share_min_partition_max_record_locks: int = setting(
        INT, 100, between(100, 2000), "Smallest share.partition.max.record.locks that a group may set."
    )
    group_share_max_partition_max_record_locks: int = setting(
        INT, 4000, between(2000, 10_000), "Largest share.partition.max.record.locks that a group may set."
    )
    group_share_record_lock_duration_ms: int = setting(
        INT, 30_000, between(1000, 3_600_000), "How long a delivered record is locked."
    )
    group_share_min_record_lock_duration_ms: int = setting(
        INT, 15_000, between(1000, 30_000), "Smallest share.record.lock.duration.ms that a group may set."
    )
    group_share_max_record_lock_duration_ms: int = setting(
        INT, 60_000, between(30_000, 3_600_000), "Largest share.record.lock.duration.ms that a group may set."
    )
    group_share_initialize_retry_interval_ms: int = setting(
        INT, 30_000, at_least(1), "Pause before share state is initialised again.", importance=LOW, internal=True
    )
    group_share_persister_class_name: str = setting(
        STRING, "org.apache.kafka.server.share.persister.DefaultStatePersister", None,
        "Class that keeps share-partition state.", effect=NO_JAVA, internal=True,
    )
    share_coordinator_append_linger_ms: int = setting(
        INT, -1, at_least(-1), "How long the coordinator gathers share state before a write; -1 adapts to the load.", effect=NO_LINGER,
    )
    share_coordinator_cached_buffer_max_bytes: int = setting(
        INT, 1_048_588, at_least(524_288), "Largest write buffer that the share coordinator keeps.", mode=CLUSTER, effect=NO_LINGER,
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(
        INT, 300_000, at_least(1), "How often idle share-partitions are snapshotted.", importance=LOW, internal=True
    )
    share_coordinator_load_buffer_size: int = setting(
        INT, 5_242_880, at_least(1), "Bytes read at a time when share state is loaded.", importance=HIGH, effect=FIXED_READS,
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        INT, 500, between(0, 500), "Updates between two snapshots of a share-partition."
    )
    share_coordinator_state_topic_compression_codec: int = setting(
        INT, 0, codec, "Codec number of the share state topic: 0 none to 4 zstd.", importance=HIGH
    )
    share_coordinator_state_topic_min_isr: int = setting(
        SHORT, 2, at_least(1), "min.insync.replicas of the share state topic.", importance=HIGH
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        INT, 50, at_least(1), "Partitions of the share state topic; fixed once it exists.", importance=HIGH
    )
    share_coordinator_state_topic_prune_interval_ms: int = setting(
        INT, 300_000, at_least(1), "How often old share state is deleted.", importance=LOW, internal=True
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        SHORT, 3, at_least(1), "Replicas of the share state topic.", importance=HIGH
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        INT, 104_857_600, at_least(1), "Segment size of the share state topic.", importance=HIGH
    )
    share_coordinator_threads: int = setting(
        INT, 1, at_least(1), "Threads of the share coordinator.", effect=NO_THREADS
    )
    share_coordinator_write_timeout_ms: int = setting(
        INT, 5000, at_least(1), "Longest wait until share state is replicated.", importance=HIGH
    )
# fmt: on
