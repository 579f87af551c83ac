"""A regular expression finds only topics that the member who brings it may describe."""

from __future__ import annotations

from typing import Any

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from tests.coordinator.virtual_world import World


def test_hidden_topics_do_not_match() -> None:
    world = World(GroupCoordinatorSettings(offsets_topic_num_partitions=1))
    for name in ("orders-1", "orders-2", "payments"):
        world.set_topic(name, 1)
    answers: list[Any] = []
    checked_topics: list[str] = []

    def may_describe(topic: str) -> bool:
        checked_topics.append(topic)
        return topic == "orders-1"

    request = ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 60_000, None, "orders-.*", None, [])
    world.coordinator.consumer_heartbeat(Caller("c", "/host", 1, may_describe), request, answers.append)
    world.time.advance(0)
    assert answers[0].error_code == 0
    assert sorted(checked_topics) == ["orders-1", "orders-2"]
    group = world.machine().groups["g"]
    assert group.subscriptions.resolved["orders-.*"].topics == {"orders-1"}
