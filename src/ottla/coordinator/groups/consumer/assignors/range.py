"""The range assignor: of each topic every member gets one contiguous stretch, members in the order of their names.

Members that want topics with equally many partitions get the same numbers of each, so that these can be joined. Not
sticky: a member that comes or goes moves the stretches of all.
"""

from __future__ import annotations

from ottla.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec
from ottla.model.ids import Uuid


class _Topic:
    """Hands out the partitions of one topic, front to back."""

    __slots__ = ("_extra", "_next", "_partitions", "_quota")

    def __init__(self, partitions: int, members: int) -> None:
        self._partitions = partitions
        self._quota, self._extra = divmod(partitions, members)
        self._next = 0

    def take(self) -> frozenset[int]:
        quota = self._quota
        if self._extra > 0:
            quota += 1
            self._extra -= 1
        start = self._next
        self._next = min(start + quota, self._partitions)
        return frozenset(range(start, self._next))


def assign_range(spec: GroupSpec) -> Assignment:
    subscribers: dict[Uuid, int] = {}
    for member in spec.members.values():
        for topic_id in member.topics:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    topics = {topic_id: _Topic(spec.partition_counts[topic_id], count) for topic_id, count in subscribers.items()}
    assignment: Assignment = {}
    for member_id in sorted(spec.members, key=lambda candidate_id: _order(spec, candidate_id)):
        partitions_by_topic = {topic_id: topics[topic_id].take() for topic_id in sorted(spec.members[member_id].topics)}
        assignment[member_id] = {
            topic_id: partitions for topic_id, partitions in partitions_by_topic.items() if partitions
        }
    return assignment


def _order(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    """Static members first, by their instance id; a restart under a new member id keeps its place."""
    instance_id = spec.members[member_id].instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
