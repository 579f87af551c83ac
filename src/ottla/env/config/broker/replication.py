"""Replicas: the ISR, fetching, leader election and balance."""

from __future__ import annotations

from ottla.env.config.checks import at_least
from ottla.env.config.effects import NO_BUFFERS, NO_THREADS, NO_TIERS
from ottla.env.config.settings import BOOLEAN, CLUSTER, HIGH, INT, LONG, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class ReplicationSettings(Settings):
    __slots__ = ()

    min_insync_replicas: int = setting(
        INT, 1, at_least(1), "Replicas that must be in sync for acks=all.", importance=HIGH, mode=CLUSTER
    )
    unclean_leader_election_enable: bool = setting(
        BOOLEAN, False, None,
        "Allow a replica that is not in sync to become leader; records can be lost.", importance=HIGH, mode=CLUSTER,
    )
    unclean_leader_election_interval_ms: int = setting(
        LONG, 300_000, at_least(1), "Interval of the search for partitions that need an unclean election.", internal=True
    )
    auto_leader_rebalance_enable: bool = setting(
        BOOLEAN, True, None, "Move leadership back to the preferred replicas.", importance=HIGH
    )
    leader_imbalance_check_interval_seconds: int = setting(
        LONG, 300, at_least(1), "How often leadership is balanced.", importance=HIGH
    )
    num_replica_fetchers: int = setting(
        INT, 1, at_least(1), "Fetchers per source broker.", importance=HIGH, mode=CLUSTER, effect=NO_THREADS
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        INT, None, None, "Threads that move replicas between directories.", importance=HIGH, effect=NO_THREADS
    )
    replica_fetch_backoff_ms: int = setting(INT, 1000, at_least(0), "Pause of a follower after a failed fetch.")
    replica_fetch_max_bytes: int = setting(INT, 1_048_576, at_least(0), "Bytes that a follower requests per partition.")
    replica_fetch_min_bytes: int = setting(
        INT, 1, None, "Bytes that make a follower's fetch return at once.", importance=HIGH
    )
    replica_fetch_response_max_bytes: int = setting(
        INT, 10_485_760, at_least(0), "Most bytes that a follower requests in one response."
    )
    replica_fetch_wait_max_ms: int = setting(INT, 500, None, "Longest wait of a follower's fetch.", importance=HIGH)
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        LONG, 5000, None, "Interval of writes of the high watermarks.", importance=HIGH
    )
    replica_lag_time_max_ms: int = setting(
        LONG, 30_000, None, "A follower that has not caught up this long leaves the ISR.", importance=HIGH
    )
    replica_selector_class: str | None = setting(
        STRING, None, None, "Class that picks the replica a consumer reads from."
    )
    replica_socket_receive_buffer_bytes: int = setting(
        INT, 65_536, None, "Receive buffer of replication sockets.", importance=HIGH, effect=NO_BUFFERS
    )
    replica_socket_timeout_ms: int = setting(
        INT, 30_000, None, "Socket timeout of replication requests.", importance=HIGH
    )
    follower_fetch_last_tiered_offset_enable: bool = setting(
        BOOLEAN, False, None, "A new follower starts at the last tiered offset.", mode=CLUSTER, effect=NO_TIERS
    )
# fmt: on
