"""One group of any kind as its page shows it: its members and what each was given. The calls are those of `ottla.client`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from ottla.client.cluster import Cluster
from ottla.client.group_lag import Partition
from ottla.client.groups import commit_offsets
from ottla.client.groups import describe_group as describe_consumer_group
from ottla.client.share_groups import alter_share_offsets, describe_share_group
from ottla.client.streams_groups import describe_streams_group
from ottla.console.cluster.snapshot import GroupRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    id: str
    client_id: str
    host: str
    instance_id: str = ""
    epoch: int | None = None
    assignment: tuple[str, ...] = ()
    """What it works on, in words: topic and partitions, or tasks."""
    owned: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    state: str
    assignor: str
    epoch: int | None
    members: tuple[MemberRow, ...]


def describe_group(cluster: Cluster, group: GroupRow) -> GroupDetail:
    return _DESCRIBERS.get(group.kind, _consumer)(cluster, group.id)


def _consumer(cluster: Cluster, group_id: str) -> GroupDetail:
    """Classic groups too."""
    described = describe_consumer_group(cluster, group_id)
    members = tuple(
        MemberRow(
            id=member.member_id,
            client_id=member.client_id,
            host=member.host,
            instance_id=member.instance_id or "",
            epoch=member.epoch,
            assignment=in_words(member.assignment),
            owned=frozenset(member.assignment),
        )
        for member in described.members
    )
    return GroupDetail(state=described.state, assignor=described.assignor, epoch=described.group_epoch, members=members)


def _share(cluster: Cluster, group_id: str) -> GroupDetail:
    described = describe_share_group(cluster, group_id)
    members = tuple(
        MemberRow(
            id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            epoch=member.member_epoch,
            # Not `owned`: in a share group a partition has many owners.
            assignment=in_words(
                (topic.topic_name, index) for topic in member.assignment.topic_partitions for index in topic.partitions
            ),
        )
        for member in described.members
    )
    return GroupDetail(
        state=described.group_state, assignor=described.assignor_name, epoch=described.group_epoch, members=members
    )


def _streams(cluster: Cluster, group_id: str) -> GroupDetail:
    described = describe_streams_group(cluster, group_id)
    members = tuple(
        MemberRow(
            id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            instance_id=member.instance_id or "",
            epoch=member.member_epoch,
            assignment=tuple(
                f"task {task.subtopology_id}: {', '.join(map(str, sorted(task.partitions)))}"
                for task in member.assignment.active_tasks
            ),
        )
        for member in described.members
    )
    return GroupDetail(state=described.group_state, assignor="streams", epoch=described.group_epoch, members=members)


_DESCRIBERS = {"share": _share, "streams": _streams}


def in_words(owned: Iterable[Partition]) -> tuple[str, ...]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(owned):
        topics.setdefault(topic, []).append(index)
    return tuple(f"{topic}: {', '.join(map(str, indexes))}" for topic, indexes in topics.items())


def visible_detail(detail: GroupDetail, topics: Container[str]) -> GroupDetail:
    """Without what members do on other topics; tasks are numbers and name none."""

    def visible(member: MemberRow) -> MemberRow:
        owned = frozenset(where for where in member.owned if where[0] in topics)
        words = tuple(
            line for line in member.assignment if line.startswith("task ") or line.rpartition(":")[0] in topics
        )
        return replace(member, owned=owned, assignment=words)

    return replace(detail, members=tuple(visible(member) for member in detail.members))


def set_offsets(cluster: Cluster, group: GroupRow, offsets: Mapping[Partition, int]) -> None:
    """For a group without members; the broker refuses while it has any."""
    if group.kind == "share":
        alter_share_offsets(cluster, group.id, offsets)
    else:
        commit_offsets(cluster, group.id, offsets)
