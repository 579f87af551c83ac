"""Share groups under random joins, leaves, deaths, new topics and partitions, states that cannot be initialized, and
restarts by replay.

What always holds: members have only what they want and what has a state; when all is at rest every partition that has
one is read by somebody, and evenly; and the log alone, replayed into a new machine, gives the same group.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordinator.decisions import Waiter
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.coordinator.groups.share.assignor import assign
from ottla.coordinator.groups.share.group import ShareGroup
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.coordinator.share.records import SharePartitionKey
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.coordinator.virtual_world import World

GROUP = "g"
TOPICS = ("ta", "tb")
MEMBERS = ("m1", "m2", "m3", "m4")
_CALLER = Caller("client", "/127.0.0.1", 1)


class MemoryPersister:
    """Knows what was initialized; fails when it is told to."""

    def __init__(self) -> None:
        self.known: dict[SharePartitionKey, int] = {}
        self.fails = False

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, waiter: Waiter) -> None:
        del start_offset
        if self.fails:
            waiter(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self.known[key] = state_epoch
            waiter(None)

    def delete(self, key: SharePartitionKey, waiter: Waiter) -> None:
        self.known.pop(key, None)
        waiter(None)


class ShareWorld(World):
    def __init__(self, persister: MemoryPersister) -> None:
        self.persister = persister
        super().__init__(
            GroupCoordinatorSettings(
                group_share_assignment_interval_ms=0,
                group_share_max_size=3,
                group_share_initialize_retry_interval_ms=1_000,
                offsets_topic_num_partitions=1,
            )
        )

    def _coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.settings,
            self.time,
            self.random,
            self.time,
            self.replicas,
            lambda: self.persister,  # type: ignore[arg-type]
        )


class ShareGroupsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.persister = MemoryPersister()
        self.world = ShareWorld(self.persister)
        self.epochs: dict[str, int] = {}
        self.wants: dict[str, list[str]] = {}

    @initialize()
    def first_topic(self) -> None:
        self.world.set_topic("ta", 2)

    def _send(self, member: str, epoch: int, topics: list[str] | None) -> Any:
        answers: list[Any] = []
        request = ShareGroupHeartbeatRequest(GROUP, member, epoch, None, topics)
        self.world.coordinator.share.heartbeat(_CALLER, request, answers.append)
        assert len(answers) == 1, "not answered exactly once"
        return answers[0]

    @rule(member=st.sampled_from(MEMBERS), topics=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
    def join(self, member: str, topics: list[str]) -> None:
        answer = self._send(member, 0, topics)
        if isinstance(answer, KafkaError):
            assert answer.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            assert member not in self.epochs
            assert len(self.epochs) == 3
            return
        self.epochs[member], self.wants[member] = answer.member_epoch, topics
        assert answer.assignment is not None

    @rule(member=st.sampled_from(MEMBERS))
    def beat(self, member: str) -> None:
        if member in self.epochs:
            answer = self._send(member, self.epochs[member], None)
            assert not isinstance(answer, KafkaError), answer
            self.epochs[member] = answer.member_epoch
        else:
            answer = self._send(member, 1, None)
            assert isinstance(answer, KafkaError)
            assert answer.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        answer = self._send(member, -1, None)
        assert isinstance(answer, KafkaError) != (member in self.epochs)
        self.epochs.pop(member, None)
        self.wants.pop(member, None)

    @rule()
    def everybody_dies(self) -> None:
        self.world.time.advance(self.world.settings.group_share_session_timeout_ms + 1)
        self.epochs.clear()
        self.wants.clear()

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def grow(self, name: str, partitions: int) -> None:
        self.world.set_topic(name, partitions)

    @rule(fails=st.booleans())
    def persister_fails(self, *, fails: bool) -> None:
        self.persister.fails = fails

    @rule()
    def restart(self) -> None:
        before = self._facts()
        self.world.restart()
        assert self._facts() == before, "the log gives another group"

    @rule()
    def come_to_rest(self) -> None:
        self.persister.fails = False
        self.world.time.advance(1_500)
        for _ in range(4):
            for member in list(self.epochs):
                self.beat(member)
        group = self._group()
        if group is None or not self.epochs:
            return
        read: dict[Uuid, set[int]] = {}
        for member in group.members.values():
            for topic_id, partitions in member.assigned.items():
                read.setdefault(topic_id, set()).update(partitions)
        wanted = {name for topics in self.wants.values() for name in topics}
        for name in wanted & self.world.topics.keys():
            topic = self.world.topics[name]
            assert read.get(topic.id) == set(topic.partitions), f"nobody reads all of {name}"
        assert not group.initializing

    def _group(self) -> ShareGroup | None:
        found = self.world.machine().groups.get(GROUP)
        assert found is None or isinstance(found, ShareGroup)
        return found

    def _facts(self) -> Any:
        group = self._group()
        if group is None:
            return None
        states = [
            {topic_id: (each.name, each.partitions) for topic_id, each in topics.items()}
            for topics in (group.initializing, group.initialized)
        ]
        epochs = (group.group_epoch, group.assignment_epoch, group.metadata_hash)
        return group.members, group.targets, +group.topics, epochs, states, group.deleting

    @invariant()
    def nobody_has_what_has_no_state(self) -> None:
        group = self._group()
        if group is None:
            return
        assert set(group.members) == set(self.epochs)
        for member in group.members.values():
            for topic_id, partitions in member.assigned.items():
                initialized = group.initialized[topic_id]
                assert partitions <= initialized.partitions
                assert initialized.name in member.subscribed_topic_names
                for index in partitions:
                    assert SharePartitionKey(GROUP, topic_id, index) in self.persister.known


ShareGroupsMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestShareGroups = ShareGroupsMachine.TestCase

_A, _B = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))


@pytest.mark.parametrize(("members", "partitions"), [(1, 6), (2, 6), (4, 6), (6, 6), (7, 3), (9, 2), (3, 0)])
def test_members_are_evenly_busy(members: int, partitions: int) -> None:
    names = [f"m{number}" for number in range(members)]
    wanted = dict.fromkeys(names, frozenset({_A}))
    found = assign(wanted, {_A: frozenset(range(partitions))}, {})
    sizes = [len(each.get(_A, ())) for each in found.values()]
    readers = [sum(index in each.get(_A, ()) for each in found.values()) for index in range(partitions)]
    assert max(sizes) - min(sizes) <= 1
    assert not readers or (min(readers) >= 1 and max(readers) - min(readers) <= 1)
    if partitions:
        assert min(sizes) >= 1


def test_little_moves_when_a_member_comes() -> None:
    one = assign({"a": frozenset({_A})}, {_A: frozenset(range(6))}, {})
    two = assign(dict.fromkeys("ab", frozenset({_A})), {_A: frozenset(range(6))}, one)
    assert two["a"][_A] < one["a"][_A]
    assert len(two["b"][_A]) == 3


def test_members_that_want_different_topics_get_no_others() -> None:
    found = assign({"a": frozenset({_A}), "b": frozenset({_A, _B})}, {_A: frozenset({0, 1}), _B: frozenset({0})}, {})
    assert set(found["a"]) == {_A}
    assert found["b"][_B] == {0}
