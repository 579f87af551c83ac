"""Incremental fetch sessions (KIP-227): what is asked again, what is told again, and how many there may be."""

from __future__ import annotations

import pytest

from ottla.broker.fetch_sessions import EVICTION_MS, FetchSessions, PartitionKey
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.generated.fetch_response import PartitionData


class Time:
    now_ms = 1000.0

    def time_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms


class Numbers:
    """0 first, then a number that is taken by then: neither may become an id."""

    def __init__(self) -> None:
        self._given = [0, 1, 1]
        self._next = 2

    def token_bytes(self, length: int) -> bytes:
        if self._given:
            return self._given.pop(0).to_bytes(length, "big")
        self._next += 1
        return self._next.to_bytes(length, "big")

    def uniform(self, low: float, high: float) -> float:
        return low


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def sessions(time):
    return FetchSessions(2, time, Numbers())


def request(*partitions: tuple[str, int, int], session: int = 0, epoch: int = 0, forget: tuple[str, int] | None = None):
    """(topic, partition, offset) ..."""
    topics = [FetchTopic(topic, partitions=[FetchPartition(index, fetch_offset=at)]) for topic, index, at in partitions]
    forgotten = [ForgottenTopic(forget[0], partitions=[forget[1]])] if forget else []
    return FetchRequest(session_id=session, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten)


def told(context, **high_watermarks: int) -> list[str]:
    """Answer each partition with nothing but a high watermark; which of them are worth telling."""
    answers = [
        (key, PartitionData(key.partition, 0, high_watermarks.get(key.topic, 0), 0, 0)) for key, _ in context.partitions
    ]
    return [key.topic for key, _ in context.told(answers)]


def asked(context) -> list[tuple[str, int]]:
    return [(key.topic, wanted.fetch_offset) for key, wanted in context.partitions]


def refused(sessions, sent, version=12) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        sessions.open(sent, version)
    return caught.value.code


def test_a_full_fetch_opens_a_session_and_tells_everything(sessions):
    context = sessions.open(request(("a", 0, 0), ("b", 0, 0)), 12)
    assert context.session_id > 0
    assert told(context) == ["a", "b"]
    assert len(sessions) == 1


def test_an_incremental_fetch_remembers_and_tells_what_changed(sessions):
    first = sessions.open(request(("a", 0, 0), ("b", 0, 0)), 12)
    told(first, a=5, b=5)
    second = sessions.open(request(("b", 0, 7), session=first.session_id, epoch=1), 12)
    assert asked(second) == [("a", 0), ("b", 7)]
    assert told(second, a=5, b=6) == ["b"]
    third = sessions.open(request(session=first.session_id, epoch=2), 12)
    assert told(third, a=5, b=6) == []


def test_an_error_is_told_again(sessions):
    first = sessions.open(request(("a", 0, 0)), 12)
    told(first, a=5)
    failing = [(PartitionKey("a", ZERO_UUID, 0), PartitionData(0, 6, -1, -1, -1))]
    for epoch in (1, 2):
        assert sessions.open(request(session=first.session_id, epoch=epoch), 12).told(failing) == failing
    assert told(sessions.open(request(session=first.session_id, epoch=3), 12), a=5) == ["a"]


def test_partitions_with_records_go_to_the_end(sessions):
    first = sessions.open(request(("a", 0, 0), ("b", 0, 0)), 12)
    told(first)
    second = sessions.open(request(session=first.session_id, epoch=1), 12)
    key_a = PartitionKey("a", ZERO_UUID, 0)
    second.told([(key_a, PartitionData(0, 0, 9, 0, 0, records=b"batch"))])
    third = sessions.open(request(session=first.session_id, epoch=2), 12)
    assert [topic for topic, _ in asked(third)] == ["b", "a"]


def test_forgotten_partitions(sessions):
    first = sessions.open(request(("a", 0, 0), ("b", 0, 0)), 12)
    second = sessions.open(request(session=first.session_id, epoch=1, forget=("a", 0)), 12)
    assert asked(second) == [("b", 0)]
    last = sessions.open(request(session=first.session_id, epoch=2, forget=("b", 0)), 12)
    assert (last.session_id, last.partitions, len(sessions)) == (0, [], 0)


def test_what_is_refused(sessions):
    assert refused(sessions, request(session=77, epoch=1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    first = sessions.open(request(("a", 0, 0)), 12)
    assert refused(sessions, request(session=first.session_id, epoch=2)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refused(sessions, request(session=first.session_id, epoch=1), 13) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_epochs_wrap_past_zero(sessions):
    first = sessions.open(request(("a", 0, 0)), 12)
    sessions._sessions[first.session_id].epoch = 2**31 - 1
    sessions.open(request(session=first.session_id, epoch=2**31 - 1), 12)
    assert sessions.open(request(session=first.session_id, epoch=1), 12).session_id == first.session_id


def test_the_final_epoch_closes(sessions):
    first = sessions.open(request(("a", 0, 0)), 12)
    final = sessions.open(request(("a", 0, 3), session=first.session_id, epoch=-1), 12)
    assert (final.session_id, asked(final), len(sessions)) == (0, [("a", 3)], 0)


def test_a_new_full_fetch_replaces_the_old_session(sessions):
    first = sessions.open(request(("a", 0, 0)), 12)
    second = sessions.open(request(("a", 0, 0), session=first.session_id, epoch=0), 12)
    assert second.session_id > 0
    assert len(sessions) == 1


def test_old_versions_have_no_sessions(sessions):
    assert sessions.open(request(("a", 0, 0)), 6).session_id == 0
    assert len(sessions) == 0


def test_slots_are_bounded_and_the_idle_make_room(sessions, time):
    ids = [sessions.open(request(("a", 0, 0)), 12).session_id for _ in range(3)]
    assert ids[0] > 0
    assert ids[1] > 0
    assert ids[2] == 0  # answered without a session
    time.now_ms += EVICTION_MS - 1
    sessions.open(request(session=ids[0], epoch=1), 12)  # used: the other one is the oldest now
    time.now_ms += 1
    assert sessions.open(request(("a", 0, 0)), 12).session_id > 0
    assert refused(sessions, request(session=ids[1], epoch=1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(request(session=ids[0], epoch=2), 12).session_id == ids[0]
