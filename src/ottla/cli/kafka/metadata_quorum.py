"""kafka-metadata-quorum: the controllers' quorum, and changes of its voters."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path

from ottla.cli.kafka.admin import REFUSED, command_properties_of, open_cluster
from ottla.cli.kafka.arguments import ToolParser, java_integer
from ottla.cli.kafka.columns import print_tabbed
from ottla.cli.kafka.options import Exit, OptionError
from ottla.client.cluster import Cluster
from ottla.client.errors import check, java_name
from ottla.client.settings import load_properties
from ottla.model.errors import KafkaError
from ottla.model.ids import ZERO_UUID, uuid_from_str, uuid_to_str
from ottla.protocol.generated.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.generated.describe_quorum_response import DescribeQuorumResponse, ReplicaState


def main(arguments: list[str]) -> int:
    try:
        parsed = _parser().parse(arguments)
        if parsed.command == "describe" and parsed.status == parsed.replication:
            print("One of --status or --replication must be specified with describe sub-command"
                  if not parsed.status else "Only one of --status or --replication should be specified with describe sub-command",
                  file=sys.stderr)  # fmt: skip
            return 1
        if parsed.command_config is not None and not Path(parsed.command_config).exists():
            raise OptionError(f"Properties file {parsed.command_config} does not exists!")
        bootstrap = parsed.bootstrap_controller or parsed.bootstrap_server
        controllers = parsed.bootstrap_controller is not None
        with open_cluster(bootstrap, command_properties_of(parsed.command_config), controllers=controllers) as cluster:
            return _run(cluster, parsed)
    except Exit as end:
        return end.code
    except KafkaError as reason:
        print(f"{java_name(reason)}: {reason}", file=sys.stderr)
    except REFUSED as reason:
        print(reason, file=sys.stderr)
    return 1


def _parser() -> ToolParser:
    parser = ToolParser("kafka-metadata-quorum", "This tool describes kraft metadata quorum status.", help_code=0)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", help="Brokers, as HOST:PORT,...")
    where.add_argument("--bootstrap-controller", help="Controllers, as HOST:PORT,...")
    parser.add_argument(
        "--command-config", help="A file with the client's properties; for add-controller the node's own."
    )
    commands = parser.commands()
    describe = parser.command(commands, "describe", "Describe the quorum.")
    describe.add_argument("--status", action="store_true", help="Show the state of the quorum.")
    describe.add_argument("--replication", action="store_true", help="Show how far each replica has replicated.")
    describe.add_argument("--human-readable", action="store_true", help="Print times as milliseconds ago.")
    add = parser.command(commands, "add-controller", "Add this controller to the voters.")
    add.add_argument("--dry-run", action="store_true", help="Only print the change.")
    remove = parser.command(commands, "remove-controller", "Remove a controller from the voters.")
    remove.add_argument("--controller-id", "-i", type=java_integer(), required=True, help="Its id.")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="Directory id of the controller.")
    remove.add_argument("--dry-run", action="store_true", help="Only print the change.")
    return parser


def _run(cluster: Cluster, parsed: Namespace) -> int:
    if parsed.command == "describe":
        answer = _quorum(cluster)
        if parsed.status:
            _print_status(cluster, answer)
        else:
            _print_replication(answer, human=parsed.human_readable)
    elif parsed.command == "remove-controller":
        _remove(cluster, parsed)
    else:
        _add(cluster, parsed)
    return 0


def _quorum(cluster: Cluster) -> DescribeQuorumResponse:
    request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
    answer = cluster.controller_call("describeMetadataQuorum", request, DescribeQuorumResponse, lambda a: a.error_code)
    check(answer.error_code, answer.error_message)
    check(answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].error_message)
    return answer


def _print_status(cluster: Cluster, answer: DescribeQuorumResponse) -> None:
    quorum = answer.topics[0].partitions[0]
    leader = next((row for row in quorum.current_voters if row.replica_id == quorum.leader_id), ReplicaState())
    lag = max((leader.log_end_offset - row.log_end_offset for row in quorum.current_voters), default=0)
    slowest = min(quorum.current_voters, key=lambda row: row.log_end_offset, default=leader)
    if slowest.replica_id == leader.replica_id:
        behind = 0
    elif slowest.last_caught_up_timestamp < 0:
        behind = -1
    else:
        behind = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp
    rows = {
        "ClusterId": cluster.describe("describeCluster").cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": behind,
        "CurrentVoters": _replicas(answer, quorum.current_voters),
        "CurrentObservers": _replicas(answer, quorum.observers),
    }
    for name, value in rows.items():
        print(f"{name + ':':<24}{value}")


def _replicas(answer: DescribeQuorumResponse, rows: list[ReplicaState]) -> str:
    nodes = {node.node_id: node.listeners for node in answer.nodes}
    shown = []
    for row in rows:
        cells = [f'"id": {row.replica_id}']
        if row.replica_directory_id != ZERO_UUID:
            cells.append(f'"directoryId": "{uuid_to_str(row.replica_directory_id)}"')
        if listeners := nodes.get(row.replica_id):
            listed = ", ".join(f'"{listener.name}://{listener.host}:{listener.port}"' for listener in listeners)
            cells.append(f'"endpoints": [{listed}]')
        shown.append("{" + ", ".join(cells) + "}")
    return "[" + ", ".join(shown) + "]"


def _print_replication(answer: DescribeQuorumResponse, *, human: bool) -> None:
    quorum = answer.topics[0].partitions[0]
    leader = next((row for row in quorum.current_voters if row.replica_id == quorum.leader_id), ReplicaState())
    head = ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]
    table: list[list[str]] = []
    for status, rows in (("Follower", quorum.current_voters), ("Observer", quorum.observers)):
        for row in rows:
            leads = row.replica_id == leader.replica_id and status == "Follower"
            moments = [row.last_fetch_timestamp, row.last_caught_up_timestamp]
            times = [
                f"{max(0, int(time.time() * 1000) - at)} ms ago" if human and at > 0 else str(at) for at in moments
            ]
            cells = [
                str(row.replica_id), uuid_to_str(row.replica_directory_id), str(row.log_end_offset),
                str(leader.log_end_offset - row.log_end_offset), *times, "Leader" if leads else status,
            ]  # fmt: skip
            table.insert(0, cells) if leads else table.append(cells)
    print_tabbed(head, table)


def _remove(cluster: Cluster, parsed: Namespace) -> None:
    from ottla.protocol.generated.remove_raft_voter_request import RemoveRaftVoterRequest
    from ottla.protocol.generated.remove_raft_voter_response import RemoveRaftVoterResponse

    try:
        directory = uuid_from_str(parsed.controller_directory_id)
    except ValueError as reason:
        raise ValueError(f"Failed to parse --controller-directory-id: {reason}") from None
    shown = f"KRaft controller {parsed.controller_id} with directory id {parsed.controller_directory_id}"
    if parsed.dry_run:
        print(f"DRY RUN of removing  {shown}")
        return
    request = RemoveRaftVoterRequest(None, parsed.controller_id, directory)
    answer = cluster.controller_call("removeRaftVoter", request, RemoveRaftVoterResponse, lambda a: a.error_code)
    check(answer.error_code, answer.error_message)
    print(f"Removed {shown}.")


def _add(cluster: Cluster, parsed: Namespace) -> None:
    from ottla.protocol.generated.add_raft_voter_request import AddRaftVoterRequest, Listener
    from ottla.protocol.generated.add_raft_voter_response import AddRaftVoterResponse

    if parsed.command_config is None:
        raise ValueError(
            "You must supply the configuration file of the controller you are adding when using add-controller."
        )
    properties = load_properties(parsed.command_config)
    if "controller" not in properties.get("process.roles", ""):
        raise ValueError("process.roles did not contain 'controller' in the configuration file")
    folder = (
        properties.get("metadata.log.dir") or properties.get("log.dirs", properties.get("log.dir", "")).split(",")[0]
    )
    directory = load_properties(f"{folder.strip()}/meta.properties").get("directory.id", "")
    names = [name.strip() for name in properties.get("controller.listener.names", "").split(",")]
    listeners = []
    for entry in (properties.get("advertised.listeners") or properties.get("listeners", "")).split(","):
        name, _, where = entry.strip().partition("://")
        host, _, port = where.rpartition(":")
        if name in names:
            listeners.append(Listener(name, host or "localhost", int(port)))
    node = int(properties.get("node.id", "-1"))
    ends = " and ".join(f"{listener.name}://{listener.host}:{listener.port}" for listener in listeners)
    shown = f"controller {node} with directory id {directory} and endpoints: {ends}"
    if parsed.dry_run:
        print(f"DRY RUN of adding {shown}")
        return
    request = AddRaftVoterRequest(None, 30000, node, uuid_from_str(directory), listeners)
    answer = cluster.controller_call("addRaftVoter", request, AddRaftVoterResponse, lambda a: a.error_code)
    check(answer.error_code, answer.error_message)
    print(f"Added {shown}")
