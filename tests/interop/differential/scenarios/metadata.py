"""Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from ottla.model.ids import Uuid
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.interop.differential.pair import Pair
from tests.interop.differential.scenario import scenario

INVALID_NAMES = ("", ".", "..", "a b", "ä", "x" * 250, "a/b")


def _named(*names: str | None, create: bool = False) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], create)


@scenario(MetadataRequest)
def metadata_named(pair: Pair, version: int) -> None:
    first, second = pair.create(pair.name("b"), 3), pair.create(pair.name("a"))
    pair.send(_named(first), version)
    pair.send(_named(first, second), version)
    pair.send(_named(second, first, second), version)
    if version >= 4:  # before, asking creates
        pair.send(_named(pair.name("missing"), second), version)
    pair.send(_named(*INVALID_NAMES), version)
    pair.send(MetadataRequest([MetadataRequestTopic(name=first)], False, True, True), version)
    if version:  # an empty list means all topics in v0
        pair.send(MetadataRequest([], False, True, False), version)


@scenario(MetadataRequest, servers="quiet")
def metadata_all(pair: Pair, version: int) -> None:
    pair.create(pair.name("x"), 2)
    pair.send(MetadataRequest(None if version else [], False), version)


@scenario(MetadataRequest)
def metadata_creates(pair: Pair, version: int) -> None:
    """The first answer does not wait for the topic, alone or among others, and again after a deletion."""
    name, other = pair.name("new"), pair.name("other")
    pair.send(_named(name, create=True), version)
    pair.await_leaders(name, 2)
    pair.send(_named(name, create=True), version)
    pair.send(_named("a b", create=True), version)
    pair.send(_named(other, "a b", name, other, create=True), version)
    pair.await_leaders(other, 2)
    for side in pair.sides:
        side.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
    pair.await_gone(name)
    pair.send(_named(name, create=True), version)
    pair.await_leaders(name, 2)


@scenario(MetadataRequest, servers="quiet")
def metadata_does_not_create(pair: Pair, version: int) -> None:
    pair.send(_named(pair.name("never"), create=True), version)
    pair.send(_named(pair.name("never"), create=False), version)


@scenario(MetadataRequest, versions=range(10, 14))
def metadata_by_id(pair: Pair, version: int) -> None:
    name = pair.create(pair.name("t"))
    unknown = Uuid(b"unknown-topic-id")

    def topics(*ids: Uuid, named: str | None = None) -> MetadataRequest:
        return MetadataRequest([MetadataRequestTopic(each, named) for each in ids], False)

    pair.send(lambda side: topics(side.topic_id(name)), version)
    pair.send(topics(unknown), version)
    pair.send(lambda side: topics(side.topic_id(name), unknown), version)
    pair.send(lambda side: topics(side.topic_id(name), named=name), version)
    if version < 12:
        pair.send(_named(None), version)
    pair.send(
        lambda side: MetadataRequest(
            [MetadataRequestTopic(side.topic_id(name), None), MetadataRequestTopic(name=name)], False
        ),
        version,
    )


@scenario(DescribeTopicPartitionsRequest)
def describe_topic_partitions(pair: Pair, version: int) -> None:
    first, second, third = (pair.create(pair.name(each), 3) for each in "abc")
    names = [first, second, third]

    def describe(topics: list[str], limit: int = 2000, cursor: Cursor | None = None) -> None:
        pair.send(DescribeTopicPartitionsRequest([TopicRequest(t) for t in topics], limit, cursor), version)

    describe(names)
    describe(names[::-1])
    describe([first, first])
    describe([pair.name("missing"), second])
    describe(["a b", first])
    describe(["", first, "", first])
    describe(["", first], 10, Cursor(first, 0))
    describe(["", first], 10, Cursor("", 0))
    for limit in (1, 2, 3, 4, 7, 9, 0, -1):
        describe(names, limit)
    for at in (0, 1, 2, 3, 9, -1):
        describe(names, 2, Cursor(second, at))
    describe(names, 10, Cursor(pair.name("bb"), 0))
    describe(names, 10, Cursor(pair.name("zz"), 0))
    describe([pair.name("gone"), second], 10, Cursor(pair.name("gone"), 0))
    describe([], 3, Cursor(first, 1))
