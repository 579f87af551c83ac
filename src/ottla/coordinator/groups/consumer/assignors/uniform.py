"""The uniform assignor: members get equal numbers of partitions, plus or minus one, and keep their partitions.

Quotas do this where all members have the same subscription; `heterogeneous` serves the other groups.
"""

from __future__ import annotations

from ottla.coordinator.groups.consumer.assignors.heterogeneous import assign_heterogeneous
from ottla.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec
from ottla.model.ids import Uuid
from ottla.model.java_order import partitions_in_java_order, uuids_in_java_order


def assign_uniform(spec: GroupSpec) -> Assignment:
    if not spec.members:
        return {}
    if not spec.homogeneous:
        return assign_heterogeneous(spec)
    topics = next(iter(spec.members.values())).topics
    return _Homogeneous(spec, topics).build() if topics else {}


class _Homogeneous:
    def __init__(self, spec: GroupSpec, topics: frozenset[Uuid]) -> None:
        self._spec = spec
        self._topics = topics
        self._targets: dict[str, dict[Uuid, set[int]]] = {}
        self._unfilled: list[tuple[str, int]] = []
        self._unassigned = self._never_assigned()
        total = sum(spec.partition_counts[topic_id] for topic_id in topics)
        self._quota, self._extras = divmod(total, len(spec.members))

    def build(self) -> Assignment:
        for position, member_id in enumerate(self._spec.members):
            self._keep(member_id, members_left=len(self._spec.members) - position)
        self._hand_out()
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}
            for member_id, target in self._targets.items()
        }

    def _never_assigned(self) -> list[tuple[Uuid, int]]:
        """Partitions in no member's target: new partitions, and partitions of members that left."""
        assigned: dict[Uuid, set[int]] = {}
        for member in self._spec.members.values():
            for topic_id, partitions in member.target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return [
            (topic_id, partition)
            for topic_id in uuids_in_java_order(sorted(self._topics))
            for partition in range(self._spec.partition_counts[topic_id])
            if partition not in assigned.get(topic_id, ())
        ]

    def _keep(self, member_id: str, members_left: int) -> None:
        """The member keeps its partitions up to its quota and gives back the rest."""
        quota = self._quota
        has_extra = self._extras > 0
        if has_extra:
            quota += 1
        target: dict[Uuid, set[int]] = {}
        old = self._spec.members[member_id].target
        for topic_id in uuids_in_java_order(old):
            if topic_id not in self._topics:
                continue
            ordered = partitions_in_java_order(old[topic_id])
            retained, over = ordered[:quota], ordered[quota:]
            quota -= len(retained)
            self._unassigned += [(topic_id, partition) for partition in over]
            if retained:
                target[topic_id] = set(retained)
        if quota > 0 and has_extra and members_left > self._extras:
            # Enough members remain for the extra partitions: this member need not be filled up.
            quota -= 1
            has_extra = False
        if quota > 0:
            self._unfilled.append((member_id, quota))
        if has_extra:
            self._extras -= 1
        self._targets[member_id] = target

    def _hand_out(self) -> None:
        unassigned = iter(self._unassigned)
        for member_id, quota in self._unfilled:
            target = self._targets[member_id]
            for _, (topic_id, partition) in zip(range(quota), unassigned, strict=False):
                target.setdefault(topic_id, set()).add(partition)
