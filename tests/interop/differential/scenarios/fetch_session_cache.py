"""Fetch sessions at their limits: more than there are slots, ids that none has, requests that overtake each other."""

from __future__ import annotations

from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.interop.differential.batches import batch, produce
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.scenario import scenario

MIB = 1 << 20
SLOTS = 16
"""max.incremental.fetch.session.cache.slots of the servers called "quiet" in test_differential.py: two in each shard."""
IDS_OF_A_SHARD = (2**31 - 1) // 8


def _wanted(side: Side, topic: str, version: int, *partitions: tuple[int, int]) -> list[FetchTopic]:
    items = [FetchPartition(p, fetch_offset=offset, partition_max_bytes=MIB) for p, offset in partitions]
    return [FetchTopic(topic_id=side.topic_id(topic), partitions=items) if version >= 13 else FetchTopic(topic, partitions=items)]  # fmt: skip


@scenario(FetchRequest, servers="quiet", versions=range(12, 14))
def fetch_session_slots(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 4)

    def full(*partitions: int, session: int = 0) -> None:
        def build(side: Side) -> FetchRequest:
            known = side.memory[f"session{session}"] if session else 0
            wanted = _wanted(side, topic, version, *((p, 0) for p in partitions))
            return FetchRequest(max_wait_ms=0, session_id=known, session_epoch=0, topics=wanted)

        pair.send(build, version)

    def close(number: int) -> None:
        pair.send(
            lambda side: FetchRequest(max_wait_ms=0, session_id=side.memory[f"session{number}"], session_epoch=-1),
            version,
        )

    for number in range(1, SLOTS + 1):
        full(*range(1 + number % 4))
        pair.remember(f"session{number}", lambda answer: answer.session_id)
    for _ in range(8):  # no shard has a slot left, and nothing young is displaced by something larger
        full(0, 1, 2, 3)
    close(3)
    close(3)
    close(12)
    for _ in range(8):  # the shards that have a slot again are the third and the fourth
        full(0)
    full(0, session=5)  # one goes, its shard's turn comes later
    for number in range(1, SLOTS + 1):
        pair.send(
            lambda side, number=number: FetchRequest(max_wait_ms=0, session_id=side.memory[f"session{number}"], session_epoch=1),
            version,
        )  # fmt: skip
    for number in range(1, SLOTS + 1):
        close(number)
    full(0)
    for _ in range(SLOTS):
        full(0, 1)


@scenario(FetchRequest, versions=range(7, 19, 5))
def fetch_session_odd_ids(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 2)
    pair.send(produce(topic, batch(b"a", b"b"), version=9), 9)
    for session in (
        -1,
        1 - IDS_OF_A_SHARD,
        -IDS_OF_A_SHARD,
        -(2**31),
        8 * IDS_OF_A_SHARD - 1,
        8 * IDS_OF_A_SHARD,
        2**31 - 1,
    ):
        for epoch in (0, 1, -1, -2, -(2**31), 2**31 - 1):
            pair.send(
                lambda side, session=session, epoch=epoch: FetchRequest(
                    max_wait_ms=0, session_id=session, session_epoch=epoch, topics=_wanted(side, topic, version, (0, 0), (1, 0))
                ),
                version,
            )  # fmt: skip


@scenario(FetchRequest, versions=range(4, 19, 7))
def fetch_partition_twice(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 2)
    for partition in range(2):
        pair.send(produce(topic, batch(b"a", b"b"), version=9, partition=partition), 9)

    def fetch(*partitions: tuple[int, int], epoch: int = -1, apart: bool = False) -> None:
        def build(side: Side) -> FetchRequest:
            asked = [[each] for each in partitions] if apart else [list(partitions)]
            topics = [t for each in asked for t in _wanted(side, topic, version, *each)]
            return FetchRequest(
                max_wait_ms=0, session_id=side.memory.get("session", 0), session_epoch=epoch, topics=topics
            )

        pair.send(build, version)

    for apart in (False, True):
        fetch((0, 0), (0, 1), apart=apart)
        fetch((0, 1), (1, 0), (0, 7), apart=apart)
        fetch((5, 0), (1, 0), (5, 0), apart=apart)
        if version >= 7:
            fetch((0, 7), (1, 0), (0, 0), epoch=0, apart=apart)
            pair.remember("session", lambda answer: answer.session_id)
            fetch((1, 9), (1, 2), (0, 1), epoch=1, apart=apart)
            fetch(epoch=2)
            fetch((0, 0), (0, 0), epoch=-1, apart=apart)


@scenario(FetchRequest, versions=range(7, 19, 5))
def fetch_session_asks_and_forgets(pair: Pair, version: int) -> None:
    """A session that is empty afterwards ends; what the request asked for is answered all the same."""
    topic = pair.create(pair.name("t"), 1)
    pair.send(produce(topic, batch(b"a", b"b"), version=9), 9)
    pair.send(FetchRequest(max_wait_ms=0, session_epoch=0), version)
    pair.remember("session", lambda answer: answer.session_id)

    def both(side: Side) -> FetchRequest:
        where = {"topic_id": side.topic_id(topic)} if version >= 13 else {"topic": topic}
        return FetchRequest(
            max_wait_ms=0, session_id=side.memory["session"], session_epoch=1, topics=_wanted(side, topic, version, (0, 0)),
            forgotten_topics_data=[ForgottenTopic(**where, partitions=[0])],
        )  # fmt: skip

    pair.send(both, version)
    pair.send(lambda side: FetchRequest(max_wait_ms=0, session_id=side.memory["session"], session_epoch=2), version)


@scenario(FetchRequest, versions=range(7, 19, 5))
def fetch_session_overtaken(pair: Pair, version: int) -> None:
    """A request waits; meanwhile another connection goes on with its session."""
    topic = pair.create(pair.name("t"), 1)

    def fetch(session: int, epoch: int, wait_ms: int) -> FetchRequest:
        return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, session_id=session, session_epoch=epoch)

    pair.send(
        lambda side: FetchRequest(max_wait_ms=0, session_epoch=0, topics=_wanted(side, topic, version, (0, 0))), version
    )
    pair.remember("session", lambda answer: answer.session_id)
    waiting = pair.start(lambda side: fetch(side.memory["session"], 1, 300), version)
    other = pair.another()
    # Which connection is read first is chance: the second epoch is refused as long as the first is not there.
    other.wait(lambda side: fetch(side.memory["session"], 2, 0), version, lambda answer: answer.error_code == 0)
    other.send(lambda side: fetch(side.memory["session"], 3, 0), version)
    waiting.finish()
    pair.send(lambda side: fetch(side.memory["session"], 4, 0), version)
