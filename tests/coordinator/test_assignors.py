"""The assignors' promises, for any members, topics and histories. That they equal Kafka's is shown by the exchanges."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.groups.consumer.assignors import ASSIGNORS
from ottla.coordinator.groups.consumer.assignors.spec import Assignment, ConsumerMemberSpec, GroupSpec
from ottla.model.ids import Uuid

TOPICS = [Uuid(bytes([number]) * 16) for number in range(4)]
counts = st.lists(st.integers(1, 12), min_size=4, max_size=4).map(lambda sizes: dict(zip(TOPICS, sizes, strict=True)))
wishes = st.lists(st.sets(st.sampled_from(TOPICS)).map(frozenset), min_size=1, max_size=7)


def spec(subscriptions: list[frozenset[Uuid]], sizes: dict[Uuid, int], before: Assignment) -> GroupSpec:
    members = {
        f"m{index}": ConsumerMemberSpec(f"i{index}" if index % 3 == 0 else None, topics, before.get(f"m{index}", {}))
        for index, topics in enumerate(subscriptions)
    }
    return GroupSpec(members, sizes, len(set(subscriptions)) == 1)


def check(group: GroupSpec, assignment: Assignment) -> None:
    """Each partition of each subscribed topic has exactly one owner, which subscribes to the topic."""
    seen: dict[tuple[Uuid, int], str] = {}
    for member_id, topics in assignment.items():
        for topic_id, partitions in topics.items():
            assert partitions, "an empty set of partitions"
            assert topic_id in group.members[member_id].topics
            for partition in partitions:
                assert seen.setdefault((topic_id, partition), member_id) == member_id
    subscribed = {topic_id for member in group.members.values() for topic_id in member.topics}
    assert seen.keys() == {(topic_id, i) for topic_id in subscribed for i in range(group.partition_counts[topic_id])}


def size(assignment: Assignment, member_id: str) -> int:
    return sum(map(len, assignment.get(member_id, {}).values()))


@settings(max_examples=150, deadline=None)
@given(sizes=counts, first=wishes, second=wishes, name=st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner(
    sizes: dict[Uuid, int], first: list[frozenset[Uuid]], second: list[frozenset[Uuid]], name: str
) -> None:
    group = spec(first, sizes, {})
    before = ASSIGNORS[name](group)
    check(group, before)
    again = spec(second, sizes, before)
    check(again, ASSIGNORS[name](again))


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_the_order_in_which_a_set_gives_its_topics_decides_nothing(name: str) -> None:
    """Java's order of these topics is a tie, and the order of a Python set differs from process to process."""
    sizes = dict.fromkeys(TOPICS, 3)
    forwards, backwards = (
        ASSIGNORS[name](spec([cast("frozenset[Uuid]", order)] * 2, sizes, {}))
        for order in (tuple(TOPICS), tuple(reversed(TOPICS)))
    )
    assert [(member_id, list(target.items())) for member_id, target in forwards.items()] == [
        (member_id, list(target.items())) for member_id, target in backwards.items()
    ]


@settings(max_examples=100, deadline=None)
@given(sizes=counts, topics=st.sets(st.sampled_from(TOPICS), min_size=1), members=st.integers(1, 9), draws=st.data())
def test_uniform_is_even_and_sticky(
    sizes: dict[Uuid, int], topics: set[Uuid], members: int, draws: st.DataObject
) -> None:
    uniform = ASSIGNORS["uniform"]
    group = spec([frozenset(topics)] * members, sizes, {})
    before = uniform(group)
    shares = [size(before, member_id) for member_id in group.members]
    assert max(shares) - min(shares) <= 1
    gone = draws.draw(st.integers(0, members - 1))
    stayed = {member_id: target for member_id, target in before.items() if member_id != f"m{gone}"}
    remaining = {
        member_id: remaining_member for member_id, remaining_member in group.members.items() if member_id != f"m{gone}"
    }
    if remaining:
        after = uniform(
            GroupSpec(
                {m: ConsumerMemberSpec(e.instance_id, e.topics, stayed[m]) for m, e in remaining.items()},
                sizes,
                homogeneous=True,
            )
        )
        for member_id, target in stayed.items():
            for topic_id, partitions in target.items():
                assert partitions <= after[member_id].get(topic_id, frozenset()), "it lost what it could keep"


@given(sizes=counts, members=st.integers(1, 6))
def test_range_gives_equal_topics_equal_stretches(sizes: dict[Uuid, int], members: int) -> None:
    same = dict.fromkeys(TOPICS, max(sizes.values()))
    assignment = ASSIGNORS["range"](spec([frozenset(TOPICS)] * members, same, {}))
    for target in assignment.values():
        assert len(set(target.values())) <= 1
        for partitions in target.values():
            assert sorted(partitions) == list(range(min(partitions), max(partitions) + 1))
