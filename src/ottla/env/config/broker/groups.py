"""Classic, consumer and streams groups, and committed offsets."""

from __future__ import annotations

from ottla.env.config.checks import at_least, codec, list_of, one_of_any_case
from ottla.env.config.effects import NO_LINGER, NO_THREADS
from ottla.env.config.settings import CLUSTER, HIGH, INT, INT_MAX, LIST, LONG, SHORT, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class GroupSettings(Settings):
    __slots__ = ()

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        LIST, ("classic", "consumer", "streams"),
        list_of(("consumer", "classic", "share", "streams"), may_be_empty=False),
        "Group protocols that are served.",
    )
    group_coordinator_threads: int = setting(
        INT, 4, at_least(1), "Threads of the group coordinator.", importance=HIGH, effect=NO_THREADS
    )
    group_coordinator_background_threads: int = setting(
        INT, 2, at_least(1), "Threads for the coordinator's background work.", importance=HIGH, effect=NO_THREADS
    )
    group_coordinator_append_linger_ms: int = setting(
        INT, -1, at_least(-1), "How long the coordinator gathers group records before a write; -1 adapts to the load.", effect=NO_LINGER,
    )
    group_coordinator_cached_buffer_max_bytes: int = setting(
        INT, 1_048_588, at_least(524_288), "Largest write buffer that a coordinator keeps.", mode=CLUSTER, effect=NO_LINGER,
    )
    group_initial_rebalance_delay_ms: int = setting(
        INT, 3000, None, "Wait for more members before an empty classic group's first rebalance."
    )
    group_max_session_timeout_ms: int = setting(
        INT, 1_800_000, None, "Longest session timeout that a classic member may request."
    )
    group_min_session_timeout_ms: int = setting(
        INT, 6000, None, "Shortest session timeout that a classic member may request."
    )
    group_max_size: int = setting(INT, INT_MAX, at_least(1), "Most members of a classic group.")
    group_consumer_session_timeout_ms: int = setting(
        INT, 45_000, at_least(1), "A consumer group removes a member that sends no heartbeat for this long."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        INT, 45_000, at_least(1), "Smallest consumer.session.timeout.ms that a group may set."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        INT, 60_000, at_least(1), "Largest consumer.session.timeout.ms that a group may set."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        INT, 5000, at_least(1), "Interval of heartbeats of consumer group members."
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        INT, 5000, at_least(1), "Smallest consumer.heartbeat.interval.ms that a group may set."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        INT, 15_000, at_least(1), "Largest consumer.heartbeat.interval.ms that a group may set."
    )
    group_consumer_assignment_interval_ms: int = setting(
        INT, 1000, at_least(0), "Shortest time between two assignments of a consumer group.", mode=CLUSTER
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        INT, 0, at_least(0), "Smallest consumer.assignment.interval.ms that a group may set."
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        INT, 15_000, at_least(0), "Largest consumer.assignment.interval.ms that a group may set."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        LIST, ("uniform", "range"), list_of(may_be_empty=False), "Server-side assignors; the first is the default."
    )
    group_consumer_max_size: int = setting(INT, INT_MAX, at_least(1), "Most members of a consumer group.")
    group_consumer_migration_policy: str = setting(
        STRING, "bidirectional", one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        "Allowed conversions between classic and consumer groups.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        INT, 600_000, at_least(10_000),
        "How often regular expressions are matched against the topics again.", internal=True,
    )
    group_streams_session_timeout_ms: int = setting(
        INT, 45_000, at_least(1), "A streams group removes a member that sends no heartbeat for this long."
    )
    group_streams_min_session_timeout_ms: int = setting(
        INT, 45_000, at_least(1), "Smallest streams.session.timeout.ms that a group may set."
    )
    group_streams_max_session_timeout_ms: int = setting(INT, 60_000, at_least(1), "Largest streams.session.timeout.ms that a group may set.")
    group_streams_heartbeat_interval_ms: int = setting(
        INT, 5000, at_least(1), "Interval of heartbeats of streams group members."
    )
    group_streams_min_heartbeat_interval_ms: int = setting(
        INT, 5000, at_least(1), "Smallest streams.heartbeat.interval.ms that a group may set."
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        INT, 15_000, at_least(1), "Largest streams.heartbeat.interval.ms that a group may set."
    )
    group_streams_assignment_interval_ms: int = setting(
        INT, 1000, at_least(0), "Shortest time between two assignments of a streams group.", mode=CLUSTER
    )
    group_streams_min_assignment_interval_ms: int = setting(INT, 0, at_least(0), "Smallest streams.assignment.interval.ms that a group may set.")
    group_streams_max_assignment_interval_ms: int = setting(
        INT, 15_000, at_least(0), "Largest streams.assignment.interval.ms that a group may set."
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        INT, 3000, at_least(0), "Wait for more members before a streams group's first assignment."
    )
    group_streams_num_standby_replicas: int = setting(INT, 0, at_least(0), "Standby copies of each task's state.")
    group_streams_max_standby_replicas: int = setting(INT, 2, at_least(0), "Most standby copies that a group may set.")
    group_streams_max_size: int = setting(INT, INT_MAX, at_least(1), "Most members of a streams group.")
    offset_metadata_max_bytes: int = setting(
        INT, 4096, None, "Longest metadata text of a committed offset, in bytes.", importance=HIGH
    )
    offsets_commit_timeout_ms: int = setting(
        INT, 5000, at_least(1), "Longest wait until a commit is replicated.", importance=HIGH
    )
    offsets_load_buffer_size: int = setting(
        INT, 5_242_880, at_least(1), "Bytes read at a time when offsets are loaded.", importance=HIGH
    )
    offsets_retention_minutes: int = setting(
        INT, 10_080, at_least(1), "How long offsets of an empty group are kept.", importance=HIGH
    )
    offsets_retention_check_interval_ms: int = setting(
        LONG, 600_000, at_least(1), "Interval of the search for expired offsets.", importance=HIGH
    )
    offsets_topic_compression_codec: int = setting(
        INT, 0, codec, "Codec number of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", importance=HIGH
    )
    offsets_topic_num_partitions: int = setting(
        INT, 50, at_least(1), "Partitions of the offsets topic; fixed once it exists.", importance=HIGH
    )
    offsets_topic_replication_factor: int = setting(
        SHORT, 3, at_least(1), "Replicas of the offsets topic.", importance=HIGH
    )
    offsets_topic_segment_bytes: int = setting(
        INT, 104_857_600, at_least(1), "Segment size of the offsets topic.", importance=HIGH
    )
# fmt: on
