"""The reports of `ottla cluster status` and `quorum`: as values for JSON, and as tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

_METADATA_TOPIC = "__cluster_metadata"
_LISTED = 10


def status_report(connected: Cluster) -> dict[str, Any]:
    from ottla.cli.backup.restore_mark import restores_under_way
    from ottla.client.balancing import spread
    from ottla.client.reassignments import view

    seen = view(connected)
    restoring = restores_under_way({topic for topic, _ in seen.replicas})
    held = spread(seen.brokers, seen.replicas)
    leading = {broker.id: 0 for broker in seen.brokers}
    for leader in seen.leaders.values():
        if leader in leading:
            leading[leader] += 1
    nodes = [
        {
            "id": broker.id,
            "state": "up",
            "address": seen.addresses[broker.id],
            "rack": broker.rack,
            "replicas": held[broker.id][0],
            "leaders": leading[broker.id],
        }
        for broker in seen.brokers
    ]
    gone = Counter(node for replicas in seen.replicas.values() for node in replicas if node not in leading)
    nodes += [
        {"id": node, "state": "gone", "address": None, "rack": None, "replicas": replicas, "leaders": 0}
        for node, replicas in sorted(gone.items())
    ]
    return {
        "cluster_id": seen.cluster_id,
        "healthy": not (gone or seen.under_replicated or seen.leaderless or restoring),
        "controller": seen.controller_id,
        "nodes": nodes,
        "partitions": len(seen.replicas),
        "under_replicated": [f"{topic}-{index}" for topic, index in seen.under_replicated],
        "without_leader": [f"{topic}-{index}" for topic, index in seen.leaderless],
        "moving": [f"{topic}-{index}" for topic, index in sorted(seen.moving)],
        "restoring": restoring,
    }


def status_table(report: dict[str, Any]) -> None:
    from ottla.cli.terminal.output import console
    from ottla.cli.terminal.tables import print_rows

    rows = [
        [
            *map(
                str,
                (
                    node["id"],
                    node["state"],
                    node["address"] or "-",
                    node["rack"] or "",
                    node["replicas"],
                    node["leaders"],
                ),
            )
        ]
        for node in report["nodes"]
    ]
    print_rows(
        ("node", "state", "address", "rack", "replicas", "leaders"), rows, heading=f"cluster {report['cluster_id']}"
    )
    screen = console()
    screen.print(f"{report['partitions']} partitions{', every replica in sync' if report['healthy'] else ''}")
    for name, words in (
        ("under_replicated", "with fewer replicas in sync than assigned"),
        ("without_leader", "without a leader"),
        ("moving", "being moved"),
    ):
        partition_names = report[name]
        if partition_names:
            more = f" and {len(partition_names) - _LISTED} more" if len(partition_names) > _LISTED else ""
            screen.print(f"{len(partition_names)} {words}: {', '.join(partition_names[:_LISTED])}{more}")
    for backup in report["restoring"]:
        screen.print(f"a restore of {backup} has not ended: `ottla backup restore WHERE {backup} --continue`")


def quorum_report(connected: Cluster) -> dict[str, Any]:
    from ottla.client.errors import check
    from ottla.protocol.generated import describe_quorum_request as messages
    from ottla.protocol.generated.describe_quorum_response import DescribeQuorumResponse

    topic = messages.TopicData(_METADATA_TOPIC, [messages.PartitionData(0)])
    request = messages.DescribeQuorumRequest(topics=[topic])
    answer = connected.controller_call("describeQuorum", request, DescribeQuorumResponse, lambda a: a.error_code)
    check(answer.error_code, answer.error_message)
    quorum = answer.topics[0].partitions[0]
    check(quorum.error_code, quorum.error_message)
    end = max((r.log_end_offset for r in [*quorum.current_voters, *quorum.observers]), default=0)
    return {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "replicas": [
            {"id": replica.replica_id, "role": role, "end": replica.log_end_offset, "lag": end - replica.log_end_offset}
            for role, replicas in (("voter", quorum.current_voters), ("observer", quorum.observers))
            for replica in sorted(replicas, key=lambda r: r.replica_id)
        ],
    }


def quorum_table(report: dict[str, Any]) -> None:
    from ottla.cli.terminal.tables import print_rows

    title = f"leader {report['leader']}, epoch {report['epoch']}, high watermark {report['high_watermark']}"
    rows = []
    for replica in report["replicas"]:
        role = "leader" if replica["id"] == report["leader"] else replica["role"]
        rows.append([str(replica["id"]), role, str(replica["end"]), str(replica["lag"])])
    print_rows(("node", "role", "end offset", "lag"), rows, heading=title)
