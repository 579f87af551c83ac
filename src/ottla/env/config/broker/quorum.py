"""The metadata quorum: voters, elections, the metadata log and its snapshots, broker heartbeats."""

from __future__ import annotations

from ottla.env.config.checks import at_least, bootstrap_servers, list_of, voters
from ottla.env.config.effects import METADATA_FILES, NO_LINGER, NO_NOOPS, NO_REPORTERS, ONE_TIMEOUT
from ottla.env.config.settings import BOOLEAN, HIGH, INT, LIST, LONG, LOW, REQUIRED, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class QuorumSettings(Settings):
    __slots__ = ()

    controller_listener_names: tuple[str, ...] = setting(
        LIST, REQUIRED, list_of(may_be_empty=False),
        "Names of the controllers' listeners; brokers use the first.", importance=HIGH,
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        LIST, (), voters,
        "The fixed voters, as id@host:port,...; leave empty for a dynamic quorum.", importance=HIGH,
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        LIST, (), bootstrap_servers,
        "Addresses where a node of a dynamic quorum asks for the leader.", importance=HIGH,
    )
    controller_quorum_auto_join_enable: bool = setting(
        BOOLEAN, False, None, "A controller that is not a voter yet adds itself.", importance=LOW
    )
    controller_quorum_election_timeout_ms: int = setting(
        INT, 1000, at_least(0), "Wait for votes before a new election is tried.", importance=HIGH
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        INT, 1000, at_least(0), "Longest random pause between two elections.", importance=HIGH
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        INT, 2000, at_least(0),
        "A voter that cannot fetch from the leader this long calls an election.", importance=HIGH,
    )
    controller_quorum_fetch_max_bytes: int = setting(
        INT, 1_048_576, at_least(1), "Most bytes of metadata log in one fetch.", importance=LOW
    )
    controller_quorum_fetch_snapshot_max_bytes: int = setting(
        INT, 1_048_576, at_least(1), "Most bytes of a snapshot in one fetch.", importance=LOW
    )
    controller_quorum_append_linger_ms: int = setting(
        INT, 25, at_least(0), "How long the leader gathers metadata records before it writes them.", effect=NO_LINGER,
    )
    controller_quorum_request_timeout_ms: int = setting(
        INT, 2000, at_least(0), "Longest wait for an answer between quorum members."
    )
    controller_quorum_retry_backoff_ms: int = setting(
        INT, 20, at_least(0), "Pause before a quorum request is tried again.", importance=LOW
    )
    controller_socket_timeout_ms: int = setting(
        INT, 30_000, None, "Socket timeout of requests from the controller to brokers.", effect=ONE_TIMEOUT,
    )
    controller_performance_sample_period_ms: int = setting(
        LONG, 60_000, at_least(100),
        "How often controller event times are sampled for the log.", effect=NO_REPORTERS, internal=True,
    )
    controller_performance_always_log_threshold_ms: int = setting(
        LONG, 2000, at_least(0),
        "Controller events slower than this are always logged.", effect=NO_REPORTERS, internal=True,
    )
    metadata_log_dir: str | None = setting(
        STRING, None, None, "Directory of the metadata log; the first of log.dirs unless set.", importance=HIGH
    )
    metadata_log_segment_bytes: int = setting(
        INT, 1_073_741_824, at_least(8_388_608), "Largest segment of the metadata log.", importance=HIGH
    )
    metadata_log_segment_ms: int = setting(
        LONG, 604_800_000, None, "Age at which a metadata segment is closed.", importance=HIGH
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        LONG, 20_971_520, at_least(1), "Bytes of new metadata after which a snapshot is written.", importance=HIGH
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        LONG, 3_600_000, at_least(0),
        "Time after which a snapshot is written if anything changed; 0 never.", importance=HIGH,
    )
    metadata_max_retention_bytes: int = setting(
        LONG, 104_857_600, None, "Most bytes of metadata log and snapshots to keep.", importance=HIGH
    )
    metadata_max_retention_ms: int = setting(
        LONG, 604_800_000, None, "How long metadata log and snapshots are kept.", importance=HIGH
    )
    metadata_max_idle_interval_ms: int = setting(
        INT, 500, at_least(0), "The active controller writes a no-op record this often; 0 never.", importance=LOW, effect=NO_NOOPS,
    )
    internal_metadata_log_segment_bytes: int | None = setting(
        INT, None, None, "Metadata segment size below the official minimum, for tests.", importance=LOW, internal=True
    )
    internal_metadata_max_batch_size_in_bytes: int = setting(
        INT, 8_388_608, None, "Largest batch in the metadata log, for tests.", importance=LOW, internal=True, effect=METADATA_FILES,
    )
    internal_metadata_delete_delay_millis: int = setting(
        LONG, 60_000, None,
        "Wait before files of the metadata log are removed, for tests.", importance=LOW, internal=True, effect=METADATA_FILES,
    )
    broker_heartbeat_interval_ms: int = setting(INT, 2000, None, "Interval of heartbeats from a broker to the controller.")
    broker_session_timeout_ms: int = setting(INT, 9000, None, "A broker that sends no heartbeat for this long is fenced.")
    initial_broker_registration_timeout_ms: int = setting(
        INT, 60_000, None, "A broker that cannot register within this time stops."
    )
# fmt: on
