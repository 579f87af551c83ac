"""Who this node is, and what it does for everyone: ids, roles, automatic topics, policies."""

from __future__ import annotations

from ottla.env.config.checks import at_least, java_class, list_of
from ottla.env.config.effects import NO_JAVA, NO_PURGATORY, NO_THREADS
from ottla.env.config.settings import (
    BOOLEAN,
    CLASS,
    CLUSTER,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    REQUIRED,
    STRING,
    Settings,
    no_effect,
    setting,
)


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class NodeSettings(Settings):
    __slots__ = ()

    process_roles: tuple[str, ...] = setting(
        LIST, REQUIRED, list_of(("broker", "controller"), may_be_empty=False),
        "What this node does: broker, controller, or both.", importance=HIGH,
    )
    node_id: int = setting(INT, REQUIRED, at_least(0), "The node's id, unique in the cluster.", importance=HIGH)
    broker_id: int = setting(
        INT, -1, None, "Older name of node.id; both must have the same value if both are set.", importance=HIGH
    )
    broker_rack: str | None = setting(
        STRING, None, None, "Rack of this broker; replicas of a partition are spread over racks."
    )
    auto_create_topics_enable: bool = setting(
        BOOLEAN, True, None, "Create a topic when a client first asks for its metadata.", importance=HIGH
    )
    delete_topic_enable: bool = setting(BOOLEAN, True, None, "Whether topics may be deleted.", importance=HIGH)
    num_partitions: int = setting(INT, 1, at_least(1), "Partitions of a topic that is created without a number.")
    default_replication_factor: int = setting(INT, 1, None, "Replicas of a topic that is created without a number.")
    request_timeout_ms: int = setting(
        INT, 30_000, None, "Longest wait of this node's own requests to other nodes.", importance=HIGH
    )
    controlled_shutdown_enable: bool = setting(BOOLEAN, True, None, "Move leadership to other brokers before the node stops.")
    background_threads: int = setting(
        INT, 10, at_least(1), "Threads for background work.", importance=HIGH, mode=CLUSTER, effect=NO_THREADS
    )
    num_io_threads: int = setting(
        INT, 8, at_least(1), "Threads that answer requests.", importance=HIGH, mode=CLUSTER, effect=NO_THREADS
    )
    delete_records_purgatory_purge_interval_requests: int = setting(
        INT, 1, None, "Requests between two clean-ups of waiting DeleteRecords.", effect=NO_PURGATORY
    )
    fetch_purgatory_purge_interval_requests: int = setting(
        INT, 1000, None, "Requests between two clean-ups of waiting fetches.", effect=NO_PURGATORY
    )
    producer_purgatory_purge_interval_requests: int = setting(
        INT, 1000, None, "Requests between two clean-ups of waiting produce requests.", effect=NO_PURGATORY
    )
    share_fetch_purgatory_purge_interval_requests: int = setting(
        INT, 1000, None, "Requests between two clean-ups of waiting share fetches.", effect=NO_PURGATORY
    )
    max_request_partition_size_limit: int = setting(
        INT, 2000, at_least(1), "Most partitions in one DescribeTopicPartitions answer."
    )
    alter_config_policy_class_name: str | None = setting(
        CLASS, None, java_class(), "Class that may refuse a change of settings.", importance=LOW, effect=NO_JAVA
    )
    create_topic_policy_class_name: str | None = setting(
        CLASS, None, java_class(), "Class that may refuse a new topic.", importance=LOW, effect=NO_JAVA
    )
    config_providers: tuple[str, ...] = setting(
        LIST, (), list_of(),
        "Providers (file, directory, environment) of ${name:path:key} in values, when the file is read.",
        importance=LOW, mode=CLUSTER,
    )
    unstable_api_versions_enable: bool = setting(
        BOOLEAN, False, None,
        "Offer API versions that are still being developed.",
        importance=HIGH, effect=no_effect("no API here is unstable"), internal=True,
    )
    unstable_feature_versions_enable: bool = setting(
        BOOLEAN, False, None,
        "Offer feature levels that are still being developed.",
        importance=HIGH, effect=no_effect("no feature here is unstable"), internal=True,
    )
    server_max_startup_time_ms: int = setting(
        LONG, LONG_MAX, at_least(0),
        "Give up when the node has not started within this time.",
        effect=no_effect("a start is not timed"), internal=True,
    )
    telemetry_max_bytes: int = setting(
        INT, 1_048_576, at_least(1), "Largest client telemetry message accepted.", importance=LOW
    )
# fmt: on
