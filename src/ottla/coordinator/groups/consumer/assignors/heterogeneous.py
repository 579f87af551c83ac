"""The uniform assignor for members with different subscriptions.

Topics with the most partitions for each subscriber come first, as they leave the least choice. A partition without an
owner goes to the least loaded subscriber. Then, topic by topic, partitions move from the most loaded subscribers to the
least loaded. The rounds end when loads differ by at most one partition, when nothing moves, or at the limit.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec
from ottla.model.ids import Uuid

_MAX_ROUNDS = 16
_NOBODY = -1


def assign_heterogeneous(spec: GroupSpec) -> Assignment:
    return _Heterogeneous(spec).build()


class _Heterogeneous:
    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._member_ids = list(spec.members)
        self._sizes = [0] * len(self._member_ids)
        self._targets: list[dict[Uuid, set[int]]] = [{} for _ in self._member_ids]
        self._subscribers: dict[Uuid, list[int]] = {}
        for index, member_id in enumerate(self._member_ids):
            for topic_id in spec.members[member_id].topics:
                self._subscribers.setdefault(topic_id, []).append(index)
        self._owners = {topic_id: [_NOBODY] * spec.partition_counts[topic_id] for topic_id in self._subscribers}

    def build(self) -> Assignment:
        if not self._subscribers:
            return {}
        self._keep()
        self._assign_rest()
        self._balance()
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}
            for member_id, target in zip(self._member_ids, self._targets, strict=True)
        }

    def _keep(self) -> None:
        for index, member_id in enumerate(self._member_ids):
            member = self._spec.members[member_id]
            for topic_id, partitions in member.target.items():
                if topic_id not in member.topics:
                    continue
                for partition in partitions:
                    if 0 <= partition < len(self._owners[topic_id]):
                        self._assign(topic_id, partition, index)

    def _assign_rest(self) -> None:
        loads = _Loads(self._sizes)
        for topic_id in self._sorted(self._subscribers):
            unassigned = [index for index, owner in enumerate(self._owners[topic_id]) if owner == _NOBODY]
            if unassigned:
                loads.start(self._subscribers[topic_id])
            for partition in unassigned:
                self._assign(topic_id, partition, loads.next_least())

    def _balance(self) -> None:
        topics = self._sorted(topic_id for topic_id, members in self._subscribers.items() if len(members) > 1)
        last_moved = None
        loads = _Loads(self._sizes)
        for _ in range(_MAX_ROUNDS):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                if self._balance_topic(topic_id, loads) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: Uuid, loads: _Loads) -> int:
        """Move partitions of one topic between its subscribers; returns how many moved."""
        if loads.start(self._subscribers[topic_id]) <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        moved = 0
        while not loads.are_balanced():
            most = loads.next_most()
            while most is not None and not owned.get(most):
                loads.exclude_most()
                most = loads.next_most()
            if most is None:
                break
            partition = owned[most].pop()
            least = loads.next_least()
            if loads.are_balanced():
                break
            self._assign(topic_id, partition, least)
            moved += 1
        return moved

    def _sorted(self, topic_ids: Iterable[Uuid]) -> list[Uuid]:
        def order(topic_id: Uuid) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self._subscribers[topic_id])
            return (-self._spec.partition_counts[topic_id] / subscribers, subscribers, _signed(topic_id))

        return sorted(topic_ids, key=order)

    def _assign(self, topic_id: Uuid, partition: int, index: int) -> None:
        owner = self._owners[topic_id][partition]
        if owner != _NOBODY:
            self._sizes[owner] -= 1
            self._targets[owner][topic_id].discard(partition)
            if not self._targets[owner][topic_id]:
                del self._targets[owner][topic_id]
        self._owners[topic_id][partition] = index
        self._sizes[index] += 1
        self._targets[index].setdefault(topic_id, set()).add(partition)


class _Loads:
    """Subscribers of one topic by how much they have: the least loaded upwards, the most loaded downwards.

    The sizes change while this walks; both ends only remember how far they have come.
    """

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._members: list[int] = []
        self._least_end = self._least_size = self._next_least = 0
        self._most_start = self._most_end = self._most_size = self._next_most = 0

    def start(self, members: list[int]) -> int:
        """Start the next round; returns the difference between the most and the least loaded subscriber."""
        self._members = sorted(members, key=lambda index: (self._sizes[index], index))
        least, most = self._sizes[self._members[0]], self._sizes[self._members[-1]]
        self._least_end, self._least_size, self._next_least = 0, least - 1, 0
        self._most_start = self._most_end = len(self._members)
        self._most_size, self._next_most = most + 1, len(self._members) - 1
        return most - least

    def next_least(self) -> int:
        if self._next_least >= self._least_end:
            self._least_size += 1
            while (
                self._least_end < len(self._members) and self._sizes[self._members[self._least_end]] == self._least_size
            ):
                self._least_end += 1
            self._next_least = 0
        member = self._members[self._next_least]
        self._next_least += 1
        return member

    def next_most(self) -> int | None:
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_size = self._sizes[self._members[self._most_start - 1]]
            else:
                self._most_size -= 1
            while self._most_start > 0 and self._sizes[self._members[self._most_start - 1]] == self._most_size:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        member = self._members[self._next_most]
        self._next_most -= 1
        return member

    def exclude_most(self) -> None:
        """The last subscriber has nothing to move: do not offer that subscriber again."""
        at = self._next_most + 1
        self._most_end -= 1
        self._members[at], self._members[self._most_end] = self._members[self._most_end], self._members[at]

    def are_balanced(self) -> bool:
        return self._most_size - self._least_size <= 1


def _signed(uuid: Uuid) -> tuple[int, int]:
    """Kafka compares the two halves of an id as signed numbers."""
    return int.from_bytes(uuid[:8], "big", signed=True), int.from_bytes(uuid[8:], "big", signed=True)
