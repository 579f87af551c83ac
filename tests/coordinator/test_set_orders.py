"""No order of a Python set reaches records or requests: the same work is done in the same order in every process.

A set of so many names is in order by chance once in 40 factorial processes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.transactions.transaction_markers import BrokerMarkers
from ottla.coordinator.groups.share.group import SharedTopic, ShareGroup
from ottla.coordinator.groups.share.initialization import deleting_record, missing
from ottla.coordinator.runtime import EndOfTransaction
from ottla.model.ids import TopicPartition, Uuid
from tests.coordinator.virtual_world import World

TOPICS = [f"topic-{number:02}" for number in range(40)]


def test_the_leaders_of_a_transaction_get_its_markers_in_the_order_of_partitions() -> None:
    leaders = {name: 100 + number for number, name in enumerate(TOPICS)}
    asked: list[int] = []
    broker = SimpleNamespace(
        node_id=1,
        image=SimpleNamespace(partition=lambda topic, _index: SimpleNamespace(leader=leaders[topic])),
        peers=SimpleNamespace(send=lambda leader, _request, _answered: asked.append(leader)),
    )
    partitions = frozenset(TopicPartition(name, 0) for name in TOPICS)
    BrokerMarkers(cast("Any", broker)).write(EndOfTransaction(7, 0, 1, True), partitions, lambda _codes: None)
    assert asked == sorted(leaders.values())


def test_a_share_group_asks_for_states_in_the_order_of_names_and_deletes_in_the_order_of_ids() -> None:
    world = World()
    ids = {name: world.set_topic(name, 1) for name in TOPICS}
    context = world.machine()._context
    group = ShareGroup("g")
    assert [topic.name for topic in missing(group, set(TOPICS), context).values()] == TOPICS
    group.initialized = {Uuid(topic_id): SharedTopic(name, frozenset({0}), 0) for name, topic_id in ids.items()}
    record = deleting_record(group, set(ids.values()), context)
    value = cast("Any", record.value)
    assert [topic.topic_id for topic in value.deleting_topics] == sorted(ids.values())
