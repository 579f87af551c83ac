"""Fetch: offsets, sizes, sessions, isolation, leader epochs."""

from __future__ import annotations

from ottla.model.ids import Uuid
from ottla.protocol.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.interop.differential.batches import batch, produce
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.scenario import scenario
from tests.support.apache_kafka import CLUSTER_ID

MIB = 1 << 20


def _topic(side: Side, topic: str, version: int, *partitions: FetchPartition) -> FetchTopic:
    return (
        FetchTopic(topic_id=side.topic_id(topic), partitions=list(partitions))
        if version >= 13
        else FetchTopic(topic, partitions=list(partitions))
    )


def _filled(pair: Pair, name: str, batches: int = 4, partitions: int = 1) -> str:
    topic = pair.create(pair.name(name), partitions)
    for partition in range(partitions):
        for i in range(batches):
            data = batch(b"%d" % i * 40, b"second", at=1_700_000_000_000 + i * 1000, compression=i % 2)
            pair.send(produce(topic, data, version=9, partition=partition), 9)
    return topic


@scenario(FetchRequest)
def fetch_offsets(pair: Pair, version: int) -> None:
    topic = _filled(pair, "t")
    pair.send(DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 3)])], 5_000), 2)

    def fetch(
        offset: int,
        *,
        partition: int = 0,
        limit: int = MIB,
        max_bytes: int = MIB,
        isolation: int = 0,
        epoch: int = -1,
        min_bytes: int = 0,
        last_epoch: int = -1,
    ) -> None:
        wanted = FetchPartition(partition, epoch, offset, last_epoch, -1, limit)
        pair.send(
            lambda side: FetchRequest(
                None,
                -1,
                max_wait_ms=50,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation,
                topics=[_topic(side, topic, version, wanted)],
            ),
            version,
        )

    for offset in (0, 2, 3, 4, 5, 7, 8, 9, 100, -1, -5, 2**62):
        fetch(offset)
    for limit in (0, 1, 60, 150, 200, 300, -1):
        fetch(3, limit=limit)
        fetch(3, max_bytes=limit)
    fetch(3, isolation=1)
    fetch(8, isolation=1)
    fetch(3, isolation=7)
    fetch(8, min_bytes=1)
    fetch(3, min_bytes=MIB)
    fetch(3, partition=4)
    fetch(3, partition=4, isolation=7)
    fetch(3, partition=-1)
    for epoch in (0, 1, 5, -2):
        fetch(3, epoch=epoch)
    for last in (0, 1):
        fetch(3, last_epoch=last)


@scenario(FetchRequest)
def fetch_several(pair: Pair, version: int) -> None:
    one, two = _filled(pair, "one", 3, 3), _filled(pair, "two", 2)

    def fetch(limit: int, max_bytes: int, order: tuple[int, ...] = (0, 1, 2), offset: int = 0) -> None:
        def build(side: Side) -> FetchRequest:
            parts = [FetchPartition(i, fetch_offset=offset, partition_max_bytes=limit) for i in order]
            other = FetchPartition(0, fetch_offset=0, partition_max_bytes=limit)
            topics = [_topic(side, one, version, *parts), _topic(side, two, version, other)]
            return FetchRequest(max_wait_ms=0, max_bytes=max_bytes, topics=topics)

        pair.send(build, version)

    for limit, max_bytes in ((MIB, MIB), (1, MIB), (MIB, 1), (0, 0), (MIB, 0), (0, MIB)):
        fetch(limit, max_bytes)
    fetch(MIB, 1, (2, 0, 1))
    for limit, max_bytes in ((-1, MIB), (MIB, -1), (-1, -1), (0, 0), (MIB, 1)):  # and nothing there, or out of range
        for offset in (0, 6, 7):
            fetch(limit, max_bytes, (0, 1, 9), offset)
    pair.send(FetchRequest(max_wait_ms=0), version)


@scenario(FetchRequest)
def fetch_unknown(pair: Pair, version: int) -> None:
    topic = _filled(pair, "t", 1)
    part = FetchPartition(0, fetch_offset=0, partition_max_bytes=MIB)
    if version >= 13:
        unknown = [
            FetchTopic(topic_id=Uuid(b"unknown-topic-id"), partitions=[part]),
            FetchTopic(topic_id=Uuid(bytes(16)), partitions=[part]),
        ]
    else:
        unknown = [FetchTopic(name, partitions=[part]) for name in (pair.name("missing"), "a b", "")]

    def fetch(*before: FetchTopic, epoch: int = -1, cluster: str | None = None) -> None:
        def build(side: Side) -> FetchRequest:
            topics = [*before, _topic(side, topic, version, part)]
            return FetchRequest(cluster, max_wait_ms=0, session_epoch=epoch, topics=topics)

        pair.send(build, version)

    for each in unknown:
        pair.send(FetchRequest(max_wait_ms=0, topics=[each]), version)
        fetch(each)
        fetch(each, epoch=0)
    fetch(cluster="other")
    fetch(cluster=CLUSTER_ID)


@scenario(FetchRequest, versions=range(7, 19))
def fetch_sessions(pair: Pair, version: int) -> None:
    topic, other = _filled(pair, "t", 2, 2), _filled(pair, "u", 1)

    def fetch(
        epoch: int,
        *partitions: tuple[str, int, int],
        session: int | None = None,
        forget: tuple[tuple[str, int], ...] = (),
        remember: bool = False,
        isolation: int = 0,
    ) -> None:
        def build(side: Side) -> FetchRequest:
            topics = [
                _topic(side, name, version, FetchPartition(p, fetch_offset=offset, partition_max_bytes=MIB))
                for name, p, offset in partitions
            ]
            forgotten = [
                ForgottenTopic(topic_id=side.topic_id(name), partitions=[p])
                if version >= 13
                else ForgottenTopic(name, partitions=[p])
                for name, p in forget
            ]
            known = side.memory.get("session", 0) if session is None else session
            return FetchRequest(
                max_wait_ms=0,
                max_bytes=MIB,
                isolation_level=isolation,
                session_id=known or 0,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=forgotten,
            )

        pair.send(build, version)
        if remember:
            pair.remember("session", lambda answer: answer.session_id)

    fetch(0, (topic, 0, 0), session=0, forget=((topic, 0),))  # a session that begins forgets nothing
    fetch(0, (topic, 0, 0), (other, 0, 0), session=0, remember=True)
    fetch(1)  # nothing moved: the same records again
    fetch(2, (topic, 0, 4))
    fetch(3)
    pair.send(produce(topic, batch(b"new"), version=9), 9)
    fetch(4)
    fetch(5, (topic, 1, 0))
    fetch(6, forget=((topic, 1), (topic, 7)))
    fetch(7, (topic, 0, 99))
    fetch(8)
    fetch(9, (topic, 0, 5), forget=((other, 0),))
    fetch(7)  # an old epoch
    fetch(99)
    fetch(10)
    fetch(1, session=123456)  # no such session
    fetch(0, session=123456)
    fetch(-1, (topic, 0, 0))  # closes it, answers in full
    fetch(11)
    fetch(5, (topic, 0, 0), session=0)
    fetch(0, session=0, remember=True)
    fetch(1)
    fetch(-1)
    fetch(-5)
    fetch(0, (topic, 8, 0), (topic, 0, 99), (topic, 9, 0), (topic, 1, 0), session=0, remember=True)
    fetch(1)  # in the order of the answer before, where what was not there came last


@scenario(FetchRequest, versions=range(7, 19))
def fetch_session_topic_gone(pair: Pair, version: int) -> None:
    topic, kept = _filled(pair, "gone", 1), _filled(pair, "kept", 1)
    part = FetchPartition(0, fetch_offset=2, partition_max_bytes=MIB)
    pair.send(
        lambda side: FetchRequest(
            max_wait_ms=0,
            session_epoch=0,
            topics=[_topic(side, topic, version, part), _topic(side, kept, version, part)],
        ),
        version,
    )
    pair.remember("session", lambda answer: answer.session_id)
    pair.send(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000), 5)
    pair.await_gone(topic)
    pair.send(lambda side: FetchRequest(session_id=side.memory["session"], session_epoch=1), version)
    pair.send(lambda side: FetchRequest(session_id=side.memory["session"], session_epoch=2), version)
    pair.create(topic, 1)  # a namesake, whose id is another
    pair.send(lambda side: FetchRequest(session_id=side.memory["session"], session_epoch=3), version)
    pair.send(lambda side: FetchRequest(session_id=side.memory["session"], session_epoch=4), version)
