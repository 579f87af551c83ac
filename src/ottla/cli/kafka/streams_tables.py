"""kafka-streams-groups --describe: offsets, members and state of a group, each also with more columns (--verbose)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.cli.kafka.consumer_groups import print_error
from ottla.cli.kafka.group_tables import print_rows
from ottla.client.cluster import Cluster
from ottla.client.groups import committed_positions, coordinator_of
from ottla.client.offsets import end_offsets
from ottla.protocol.generated.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Subtopology,
    TaskIds,
)

_MISSING = "-"


def print_state(cluster: Cluster, group: DescribedGroup, *, verbose: bool) -> None:
    _say_if_empty(group)
    host, port, node = coordinator_of(cluster, group.group_id)
    row = [group.group_id, f"{host}:{port} ({node})", group.group_state]
    head = ["GROUP", "COORDINATOR (ID)", "STATE"]
    if verbose:
        head += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [str(group.group_epoch), str(group.assignment_epoch)]
    least = {
        "GROUP": 15, "COORDINATOR (ID)": 25, "STATE": 25, "GROUP-EPOCH": 15, "TARGET-ASSIGNMENT-EPOCH": 25,
    }  # fmt: skip
    print_rows([*head, "#MEMBERS"], [[*row, str(len(group.members))]], least)


def print_members(group: DescribedGroup, *, verbose: bool) -> None:
    if not group.members:
        return
    head = ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    if verbose:
        head[1:2] = ["TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH"]
    rows = []
    for member in group.members:
        tasks = _tasks("", member.assignment)
        row = [group.group_id, member.member_id, member.process_id, member.client_id]
        if verbose:
            tasks += _tasks("TARGET-", member.target_assignment)
            topology_epoch = str(group.topology.epoch) if group.topology is not None else _MISSING
            row[1:1] = [str(group.assignment_epoch), topology_epoch]
            row[4:4] = ["classic" if member.is_classic else "streams", str(member.member_epoch)]
        rows.append([*row, tasks])
    least = dict.fromkeys(head[:-1], 15) | {"TARGET-ASSIGNMENT-EPOCH": 25}
    print_rows(head, rows, least)


def _tasks(prefix: str, assignment: Assignment) -> str:
    return "".join(
        f"{prefix}{kind}: "
        + "".join(f"{task.subtopology_id}:[{','.join(map(str, task.partitions))}]; " for task in listed)
        for kind, listed in (
            ("ACTIVE", assignment.active_tasks),
            ("STANDBY", assignment.standby_tasks),
            ("WARMUP", assignment.warmup_tasks),
        )
        if listed
    )


def print_offsets(cluster: Cluster, group: DescribedGroup, *, verbose: bool) -> None:
    """Prints the offsets of the sources of active tasks. A source without an offset lags by all its records."""
    if not group.members:
        return
    source_partitions = sorted(
        {
            source_partition
            for member in group.members
            for source_partition in _sources(group, member.assignment.active_tasks)
        }
    )
    committed = committed_positions(cluster, group.group_id)
    ends, begins = end_offsets(cluster, source_partitions), end_offsets(cluster, source_partitions, earliest=True)
    rows = []
    for topic, partition in source_partitions:
        position = committed.get((topic, partition))
        end = ends[topic, partition]
        lag = end - (begins[topic, partition] if position is None else position.offset)
        row = [group.group_id, topic, str(partition)]
        if verbose:
            epoch = None if position is None else position.leader_epoch
            row += [
                _MISSING if position is None else str(position.offset),
                _MISSING if epoch is None else str(epoch),
                str(end),
            ]
        rows.append([*row, str(lag)])
    head = ["GROUP", "TOPIC", "PARTITION", *(("CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET") if verbose else ())]
    least = dict.fromkeys(head, 15) | {"PARTITION": 10}
    print_rows([*head, "OFFSET-LAG"], rows, least)


def _sources(group: DescribedGroup, tasks: Iterable[TaskIds]) -> list[tuple[str, int]]:
    topics = {subtopology.subtopology_id: source_topics(subtopology) for subtopology in subtopologies(group)}
    return [
        (topic, index) for task in tasks for topic in topics.get(task.subtopology_id, ()) for index in task.partitions
    ]


def subtopologies(group: DescribedGroup) -> list[Subtopology]:
    return (group.topology.subtopologies or []) if group.topology is not None else []


def source_topics(subtopology: Subtopology) -> list[str]:
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def _say_if_empty(group: DescribedGroup) -> None:
    if group.group_state == "Empty":
        print_error(f"Streams group '{group.group_id}' has no active members.")
