"""A topic grows while the group's log refuses writes: the group reads the new partitions once the log accepts
writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.coordinator.streams_topologies import beating, subtopology, topology
from tests.coordinator.virtual_world import World
from tests.share.test_share_groups import MemoryPersister, ShareWorld

CALLER = Caller("c", "/h", 1)
REFUSALS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]


class Member:
    """One member of a group of its kind: beats with the epoch of its last answer."""

    def __init__(self, world: World, send: Callable[[World, int, Callable[[Any], None]], None]) -> None:
        self.world = world
        self._send = send
        self._epoch = 0

    def beat(self) -> bool:
        """False when the coordinator could not write."""
        seen: list[Any] = []
        self._send(self.world, self._epoch, seen.append)
        if isinstance(seen[0], KafkaError):
            return False
        self._epoch = getattr(seen[0], "response", seen[0]).member_epoch
        return True

    def settle(self) -> None:
        for _ in range(6):
            self.world.time.advance(1_000)
            assert self.beat()


def consumer(regex: bool = False) -> Member:
    def send(world: World, epoch: int, waiter: Callable[[Any], None]) -> None:
        request = ConsumerGroupHeartbeatRequest("g", "m", epoch, rebalance_timeout_ms=60_000, topic_partitions=None)
        if epoch == 0:
            request.topic_partitions = []
        if regex:
            request.subscribed_topic_regex = "t.*"
        else:
            request.subscribed_topic_names = ["t"]
        world.coordinator.consumer_heartbeat(CALLER, request, waiter)

    return Member(
        World(GroupCoordinatorSettings(group_consumer_assignment_interval_ms=0, offsets_topic_num_partitions=1)), send
    )


def share(*topics: str) -> Member:
    def send(world: World, epoch: int, waiter: Callable[[Any], None]) -> None:
        request = ShareGroupHeartbeatRequest("g", "m", epoch, None, list(topics or "t") if epoch == 0 else None)
        world.coordinator.share.heartbeat(CALLER, request, waiter)

    return Member(ShareWorld(MemoryPersister()), send)


def streams() -> Member:
    def send(world: World, epoch: int, waiter: Callable[[Any], None]) -> None:
        brought = topology(subtopology("0", ["t"])) if epoch == 0 else None
        world.coordinator.streams_heartbeat(CALLER, beating("g", "m", epoch, brought), waiter)

    settings = GroupCoordinatorSettings(
        group_streams_initial_rebalance_delay_ms=0,
        group_streams_assignment_interval_ms=0,
        offsets_topic_num_partitions=1,
    )
    return Member(World(settings), send)


def assigned(member: Member) -> set[int]:
    """The partitions of t, or the tasks of its subtopology, that the group means for its member."""
    target = member.world.machine().groups["g"].targets["m"]
    of_topic = getattr(target, "active", target)
    return {partition for partitions in of_topic.values() for partition in partitions}


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda code: code.name)
@pytest.mark.parametrize(
    "make", [consumer, lambda: consumer(regex=True), share, streams], ids=["consumer", "regex", "share", "streams"]
)
def test_new_partitions_are_read_after_a_refused_heartbeat(make: Callable[[], Member], refusal: ErrorCode) -> None:
    member = make()
    world = member.world
    world.set_topic("t", 1)
    member.settle()
    assert assigned(member) == {0}
    world.set_topic("t", 3)
    world.partition().failure = KafkaError(refusal)
    assert not member.beat()
    world.partition().failure = None
    member.settle()
    assert assigned(member) == {0, 1, 2}


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda code: code.name)
def test_a_deleted_topic_leaves_a_share_group_after_a_refused_heartbeat(refusal: ErrorCode) -> None:
    """A share group asks for the states of new partitions with every heartbeat; only its hash shows what is gone."""
    member = share("t", "u")
    world = member.world
    remaining_topic = world.set_topic("t", 1)
    world.set_topic("u", 1)
    member.settle()
    world.partition().failure = KafkaError(refusal)
    world.drop_topic("u")
    assert not member.beat()
    world.partition().failure = None
    member.settle()
    assert set(world.machine().groups["g"].targets["m"]) == {remaining_topic}
