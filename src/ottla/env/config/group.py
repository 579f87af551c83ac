"""Group-level and client-metrics settings: what IncrementalAlterConfigs may set on those two resources."""

from __future__ import annotations

from .checks import at_least, list_of, offset_reset, one_of
from .settings import BOOLEAN, INT, LIST, STRING, Settings, Synonym, setting, slots_of


def _from(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class GroupOverrides(Settings):
    __slots__ = ()

    consumer_session_timeout_ms: int = setting(
        INT, 45_000, at_least(1), "The group removes a member that sends no heartbeat for this long.",
        synonyms=_from("group.consumer.session.timeout.ms"),
    )
    consumer_heartbeat_interval_ms: int = setting(
        INT, 5_000, at_least(1), "Interval of heartbeats of members.", synonyms=_from("group.consumer.heartbeat.interval.ms")
    )
    consumer_assignment_interval_ms: int = setting(
        INT, 1_000, at_least(0), "Shortest time between two assignments.",
        synonyms=_from("group.consumer.assignment.interval.ms"),
    )
    share_session_timeout_ms: int = setting(
        INT, 45_000, at_least(1), "The share group removes a member that sends no heartbeat for this long.",
        synonyms=_from("group.share.session.timeout.ms"),
    )
    share_heartbeat_interval_ms: int = setting(
        INT, 5_000, at_least(1), "Interval of heartbeats of share group members.", synonyms=_from("group.share.heartbeat.interval.ms")
    )
    share_assignment_interval_ms: int = setting(
        INT, 1_000, at_least(0), "Shortest time between two assignments of a share group.",
        synonyms=_from("group.share.assignment.interval.ms"),
    )
    share_record_lock_duration_ms: int = setting(
        INT, 30_000, at_least(1_000), "How long a delivered record is locked.",
        synonyms=_from("group.share.record.lock.duration.ms"),
    )
    share_delivery_count_limit: int = setting(
        INT, 5, at_least(2), "Most deliveries of a record before the record is archived.",
        synonyms=_from("group.share.delivery.count.limit"),
    )
    share_partition_max_record_locks: int = setting(
        INT, 2_000, at_least(100), "Records of a share-partition that may be in flight.",
        synonyms=_from("group.share.partition.max.record.locks"),
    )
    share_auto_offset_reset: str = setting(
        STRING, "latest", offset_reset, "Where a share group starts on a topic it has not read."
    )
    share_isolation_level: str = setting(
        STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"),
        "Whether records of open and aborted transactions are delivered.",
    )
    share_renew_acknowledge_enable: bool = setting(
        BOOLEAN, True, None, "Allow members to extend a record's lock with a renewing acknowledgement."
    )
    streams_session_timeout_ms: int = setting(
        INT, 45_000, at_least(1), "The streams group removes a member that sends no heartbeat for this long.",
        synonyms=_from("group.streams.session.timeout.ms"),
    )
    streams_heartbeat_interval_ms: int = setting(
        INT, 5_000, at_least(1), "Interval of heartbeats of streams group members.",
        synonyms=_from("group.streams.heartbeat.interval.ms"),
    )
    streams_assignment_interval_ms: int = setting(
        INT, 1_000, at_least(0), "Shortest time between two assignments of a streams group.",
        synonyms=_from("group.streams.assignment.interval.ms"),
    )
    streams_num_standby_replicas: int = setting(
        INT, 0, at_least(0), "Standby copies of each task's state.",
        synonyms=_from("group.streams.num.standby.replicas"),
    )
    streams_initial_rebalance_delay_ms: int = setting(
        INT, 3_000, at_least(0), "Wait for more members before the first assignment.",
        synonyms=_from("group.streams.initial.rebalance.delay.ms"),
    )


class ClientMetricsSettings(Settings):
    __slots__ = ()

    interval_ms: int = setting(INT, 300_000, None, "How often clients push these metrics.")
    match: tuple[str, ...] = setting(
        LIST, (), list_of(), "Which clients: client_id=regex, client_software_name=regex, ...; empty means all."
    )
    metrics: tuple[str, ...] = setting(LIST, (), list_of(), "Prefixes of the metrics to push; * means all.")
# fmt: on


class GroupConfig(GroupOverrides):
    """The effective settings of one group."""

    __slots__ = slots_of(GroupOverrides)


class ClientMetricsConfig(ClientMetricsSettings):
    """One client-metrics subscription."""

    __slots__ = slots_of(ClientMetricsSettings)
