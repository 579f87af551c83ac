"""The cluster behind the connection: clock, quorum, disks, partitions, groups, transactions, settings that are risky.

A check that the cluster does not answer (an old broker, no permission) reports that and does not stop the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ottla.cli.doctor.findings import Finding, error, ok, warning
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, check
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.marker_groups import is_marker_group

CLOCK_MS = 5_000
DISK_SHARE = 0.10
LAG = 100_000


def check_cluster(cluster: Cluster, lag_limit: int = LAG, now_ms: Callable[[], int] | None = None) -> Iterator[Finding]:
    now = now_ms or (lambda: int(time.time() * 1000))
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "quorum": lambda: _quorum(cluster, now),
        "brokers": lambda: _brokers(cluster),
        "settings": lambda: _settings(cluster),
        "disks": lambda: _disks(cluster),
        "partitions": lambda: _partitions(cluster),
        "groups": lambda: _groups(cluster, lag_limit),
        "transactions": lambda: _transactions(cluster, now),
    }
    for name, run in checks.items():
        try:
            yield from list(run()) or [ok(name, "nothing wrong")]
        except KafkaError as reason:
            if "AUTHORIZATION" in reason.code.name:
                yield warning(
                    "not-allowed",
                    f"{name}: {reason}",
                    "request the Describe permission on the cluster, topics and groups",
                )
            else:
                yield warning(name, f"could not be checked: {reason}", "see the broker's log")
        except ClientError as reason:
            yield warning(name, f"could not be checked: {reason}", "see the broker's log")


def _quorum(cluster: Cluster, now: Callable[[], int]) -> Iterator[Finding]:
    from ottla.protocol.generated.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
    from ottla.protocol.generated.describe_quorum_response import DescribeQuorumResponse

    request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
    before = now()
    answer = cluster.controller_call("describeMetadataQuorum", request, DescribeQuorumResponse)
    after = now()
    check(answer.error_code, answer.error_message)
    quorum = answer.topics[0].partitions[0]
    if quorum.error_code or quorum.leader_id < 0:
        yield error("no-controller", "the quorum has no leader", "start a majority of the controllers; see their logs")
        return
    leader = next((row for row in quorum.current_voters if row.replica_id == quorum.leader_id), None)
    if leader is not None and leader.last_caught_up_timestamp > 0:
        off = (
            leader.last_caught_up_timestamp - after
            if leader.last_caught_up_timestamp > after
            else before - leader.last_caught_up_timestamp
        )
        if off > CLOCK_MS:
            ahead = "behind" if leader.last_caught_up_timestamp > after else "ahead of"
            yield error(
                "clock",
                f"this clock is {off / 1000:.0f} s {ahead} controller {leader.replica_id}'s",
                "run an NTP client on both machines",
            )
    for row in quorum.current_voters:
        if leader is not None and leader.log_end_offset - row.log_end_offset > 1000:
            yield error(
                "voter-behind",
                f"controller {row.replica_id} is {leader.log_end_offset - row.log_end_offset} records behind",
                "start the controller, or check its disk and network; without a majority no metadata can change",
            )
    if len(quorum.current_voters) == 2 or (len(quorum.current_voters) > 2 and len(quorum.current_voters) % 2 == 0):
        yield warning(
            "even-quorum",
            f"{len(quorum.current_voters)} controllers",
            "use 3 or 5 controllers: an even number tolerates no more failures",
        )


def _brokers(cluster: Cluster) -> Iterator[Finding]:
    from ottla.protocol.generated.describe_cluster_request import DescribeClusterRequest
    from ottla.protocol.generated.describe_cluster_response import DescribeClusterResponse

    request = DescribeClusterRequest(endpoint_type=1, include_fenced_brokers=True)
    answer = cluster.any_call("describeCluster", request, DescribeClusterResponse)
    check(answer.error_code, answer.error_message)
    for broker in answer.brokers:
        if broker.is_fenced:
            yield error(
                "broker-fenced",
                f"broker {broker.broker_id} is registered and not alive",
                "start the broker, or remove its registration with kafka-cluster unregister",
            )


def _settings(cluster: Cluster) -> Iterator[Finding]:
    """Properties of each broker's file that Kafka does not know: a typing mistake, or a setting of a different product."""
    from ottla.client.configs import ConfigResourceType, describe_configs
    from ottla.env.config.load import unknown_lines
    from ottla.model.config_source import ConfigSource

    for broker in cluster.describe("describeCluster").brokers:
        node = str(broker.node_id)
        rows = describe_configs(cluster, ConfigResourceType.BROKER, [node]).get(node, [])
        file_settings = {row.name: "" for row in rows if row.config_source == ConfigSource.STATIC_BROKER_CONFIG}
        for line in unknown_lines(file_settings):
            name, _, reason = line.partition(": ")
            yield warning("unknown-property", f"broker {node}: {name}", reason)


def _disks(cluster: Cluster) -> Iterator[Finding]:
    from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
    from ottla.protocol.generated.describe_log_dirs_response import DescribeLogDirsResponse

    described_cluster = cluster.describe("describeLogDirs")
    for broker in described_cluster.brokers:
        try:
            request = DescribeLogDirsRequest(None)
            answer = cluster.node_call("describeLogDirs", broker.node_id, request, DescribeLogDirsResponse)
        except ClientError:
            continue  # the connection checks have reported this broker
        check(answer.error_code)
        for row in answer.results:
            where = f"broker {broker.node_id}, {row.log_dir}"
            if row.error_code:
                name = ErrorCode(row.error_code).name if row.error_code in set(ErrorCode) else row.error_code
                yield error("log-dir-offline", f"{where}: {name}", "check the disk, then restart the broker")
            elif row.total_bytes > 0 and row.usable_bytes / row.total_bytes < DISK_SHARE:
                share = row.usable_bytes / row.total_bytes
                yield error(
                    "disk-full", f"{where}: {share:.0%} free", "shorten retention, delete topics, or add disk space"
                )
            if strays := _strays(row.log_dir, broker.node_id, described_cluster.cluster_id):
                fix = (
                    "the metadata assigns these replicas to other brokers: check their contents, then "
                    "delete the folders"
                )
                yield warning("stray-partitions", f"{where}: {_some(strays)}", fix)


def _strays(log_dir: str, node_id: int, cluster_id: str | None) -> list[str]:
    """What a broker has put aside; seen only where its folder is on this machine, and is really its own."""
    folder = Path(log_dir)
    try:
        lines = (folder / "meta.properties").read_text("utf-8").splitlines()
        if not {f"node.id={node_id}", f"cluster.id={cluster_id}"} <= set(lines):
            return []
        return sorted(entry.name for entry in folder.iterdir() if entry.name.endswith("-stray"))
    except (OSError, ValueError):
        return []


def _partitions(cluster: Cluster) -> Iterator[Finding]:
    from ottla.client.configs import ConfigResourceType, describe_configs
    from ottla.client.topics import list_topics

    topics = list_topics(cluster)
    brokers = len(cluster.describe("describeCluster").brokers)
    rows = [(topic.name or "", row) for topic in topics for row in topic.partitions]
    offline = [f"{name}-{row.partition_index}" for name, row in rows if row.leader_id < 0]
    if offline:
        yield error(
            "offline-partitions",
            _some(offline),
            "start the brokers that hold them; see kafka-topics --describe --unavailable-partitions",
        )
    behind = [
        f"{name}-{row.partition_index}"
        for name, row in rows
        if row.leader_id >= 0 and len(row.isr_nodes) < len(row.replica_nodes)
    ]
    if behind:
        yield error("under-replicated", _some(behind), "start the missing brokers, or check their disks and network")
    minimum = {
        name: next((int(config.value or 1) for config in configs if config.name == "min.insync.replicas"), 1)
        for name, configs in describe_configs(cluster, ConfigResourceType.TOPIC, [topic.name or "" for topic in topics]).items()
    } if topics else {}  # fmt: skip
    short = [f"{name}-{row.partition_index}" for name, row in rows if 0 < len(row.isr_nodes) < minimum.get(name, 1)]
    if short:
        yield error(
            "under-min-isr",
            f"{_some(short)}: acks=all is refused",
            "restart the brokers of the missing replicas, or lower min.insync.replicas",
        )
    brittle = sorted(
        {name for name, row in rows if len(row.replica_nodes) > 1 and minimum.get(name, 1) >= len(row.replica_nodes)}
    )
    if brittle:
        yield warning(
            "min-isr-brittle",
            f"{_some(brittle)}: the failure of one broker stops writes",
            "set min.insync.replicas below the number of replicas",
        )
    single = sorted({name for name, row in rows if len(row.replica_nodes) == 1 and not name.startswith("__")})
    if brokers >= 3 and single:
        yield warning(
            "one-replica",
            f"{_some(single)}: the loss of one disk loses records",
            "set 3 replicas with `ottla cluster reassign TOPIC --factor 3`",
        )


def _groups(cluster: Cluster, limit: int) -> Iterator[Finding]:
    from ottla.client.groups import committed_offsets, consumer_groups
    from ottla.client.offsets import end_offsets

    groups = [group for group in consumer_groups(cluster) if not is_marker_group(group.group_id)]
    for group in groups[:200]:
        if group.group_state in {"PreparingRebalance", "CompletingRebalance"}:
            yield warning(
                "group-rebalancing",
                f"{group.group_id} is {group.group_state}",
                "find the members that join and leave; check max.poll.interval.ms and session.timeout.ms",
            )
        try:
            committed = committed_offsets(cluster, group.group_id)
            ends = end_offsets(cluster, committed)
        except KafkaError:
            continue  # a topic of it is gone
        lag = sum(max(ends[place] - offset, 0) for place, offset in committed.items() if place in ends)
        if lag > limit:
            nobody = group.group_state == "Empty"
            fix = (
                "start the consumers of the group"
                if nobody
                else "add consumers (up to the number of partitions), or make them faster"
            )
            yield warning(
                "lagging-group",
                f"{group.group_id} is {lag:,} records behind{' and has no members' if nobody else ''}",
                fix,
            )


def _transactions(cluster: Cluster, now: Callable[[], int]) -> Iterator[Finding]:
    from ottla.client.transactions import describe_transaction, list_transactions

    for _, row in list_transactions(cluster)[:500]:
        if row.transaction_state != "Ongoing":
            continue
        _, state = describe_transaction(cluster, row.transactional_id)
        age = now() - state.transaction_start_time_ms
        if state.transaction_start_time_ms > 0 and age > state.transaction_timeout_ms + 60_000:
            yield error(
                "hanging-transaction",
                f"{row.transactional_id} is open for {age // 1000} s",
                f"ottla txn terminate {row.transactional_id}",
            )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
