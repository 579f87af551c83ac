"""Every tool that `ottla shims` writes: its name without `kafka-` and `.sh`, and the module that is it."""

from __future__ import annotations

TOOLS = {
    "acls": "acls",
    "broker-api-versions": "broker_api_versions",
    "client-metrics": "client_metrics",
    "cluster": "cluster",
    "configs": "configs",
    "console-consumer": "console_consumer",
    "console-producer": "console_producer",
    "console-share-consumer": "console_share_consumer",
    "consumer-groups": "consumer_groups",
    "consumer-perf-test": "consumer_perf_test",
    "delegation-tokens": "delegation_tokens",
    "delete-records": "delete_records",
    "dump-log": "dump_log",
    "e2e-latency": "e2e_latency",
    "features": "features",
    "get-offsets": "get_offsets",
    "groups": "groups",
    "leader-election": "leader_election",
    "log-dirs": "log_dirs",
    "metadata-quorum": "metadata_quorum",
    "metadata-shell": "metadata_shell",
    "producer-perf-test": "producer_perf_test",
    "reassign-partitions": "reassign_partitions",
    "replica-verification": "replica_verification",
    "server-start": "server_start",
    "server-stop": "server_stop",
    "share-groups": "share_groups",
    "storage": "storage",
    "streams-groups": "streams_groups",
    "topics": "topics",
    "transactions": "transactions",
    "verifiable-consumer": "verifiable_consumer",
    "verifiable-producer": "verifiable_producer",
}


def tool_name(program: str) -> str:
    """`kafka-topics.sh`, `kafka-topics` or `topics` as `topics`."""
    name = program.rpartition("/")[2].removesuffix(".sh")
    return name.removeprefix("kafka-")
