"""Incremental fetch sessions (KIP-227): what is asked again, what is told again, and how many there may be."""

from __future__ import annotations

import pytest

from ottla.broker.fetch import sessions as fetch_sessions
from ottla.broker.fetch.session_cache import EVICTION_MS, IDS_OF_A_SHARD, SHARDS
from ottla.broker.fetch.sessions import FetchSessions, PartitionKey
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
    """0 first: it may not become an id."""

    def __init__(self) -> None:
        self._given = [0]
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
    return FetchSessions(SHARDS, time, Numbers())


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
    return [key.topic for key, _ in context.response_partitions(answers)]


def begun(sessions, *partitions: tuple[str, int, int], privileged: bool = False, version: int = 12, **fields) -> int:
    """The id of a session after its first answer, 0 when it got none."""
    context = sessions.open(request(*partitions, **fields), version, privileged=privileged)
    told(context)
    return context.session_id


def asked(context) -> list[tuple[str, int]]:
    return [(key.topic, wanted.fetch_offset) for key, wanted in context.partitions]


def refused(sessions, sent, version=12) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        sessions.open(sent, version)
    return caught.value.code


def test_a_full_fetch_opens_a_session_and_tells_everything(sessions):
    context = sessions.open(request(("a", 0, 0), ("b", 0, 0)), 12)
    assert len(sessions) == 0  # it begins with the answer
    assert told(context) == ["a", "b"]
    assert context.session_id > 0
    assert len(sessions) == 1


def test_of_a_partition_that_is_named_twice_the_last_counts(sessions):
    context = sessions.open(request(("a", 0, 1), ("b", 0, 2), ("a", 0, 3)), 12)
    assert asked(context) == [("a", 3), ("b", 2)]


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
        assert sessions.open(request(session=first.session_id, epoch=epoch), 12).response_partitions(failing) == failing
    assert told(sessions.open(request(session=first.session_id, epoch=3), 12), a=5) == ["a"]


def test_partitions_with_records_go_to_the_end(sessions):
    first = sessions.open(request(("a", 0, 0), ("b", 0, 0)), 12)
    told(first)
    second = sessions.open(request(session=first.session_id, epoch=1), 12)
    key_a = PartitionKey("a", ZERO_UUID, 0)
    second.response_partitions([(key_a, PartitionData(0, 0, 9, 0, 0, records=b"batch"))])
    third = sessions.open(request(session=first.session_id, epoch=2), 12)
    assert [topic for topic, _ in asked(third)] == ["b", "a"]


def test_forgotten_partitions(sessions):
    first = begun(sessions, ("a", 0, 0), ("b", 0, 0))
    second = sessions.open(request(session=first, epoch=1, forget=("a", 0)), 12)
    assert asked(second) == [("b", 0)]
    last = sessions.open(request(session=first, epoch=2, forget=("b", 0)), 12)
    assert (last.session_id, last.partitions, len(sessions)) == (0, [], 0)


def test_what_is_refused(sessions):
    assert refused(sessions, request(session=77, epoch=1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    first = begun(sessions, ("a", 0, 0))
    assert refused(sessions, request(session=first, epoch=2)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refused(sessions, request(session=first, epoch=1), 13) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_request_that_waited_while_the_session_went_on(sessions):
    first = begun(sessions, ("a", 0, 0))
    waiting = sessions.open(request(session=first, epoch=1), 12)
    assert not waiting.overtaken
    sessions.open(request(session=first, epoch=2), 12)
    assert waiting.overtaken


def test_epochs_wrap_past_zero(sessions):
    first = begun(sessions, ("a", 0, 0))
    sessions._cache.shard_of(first).sessions[first].epoch = 2**31 - 1
    sessions.open(request(session=first, epoch=2**31 - 1), 12)
    assert sessions.open(request(session=first, epoch=1), 12).session_id == first


def test_the_final_epoch_closes(sessions):
    first = begun(sessions, ("a", 0, 0))
    final = sessions.open(request(("a", 0, 3), session=first, epoch=-1), 12)
    told(final)
    assert (final.session_id, asked(final), len(sessions)) == (0, [("a", 3)], 0)


def test_a_new_full_fetch_replaces_the_old_session(sessions):
    first = begun(sessions, ("a", 0, 0))
    assert begun(sessions, ("a", 0, 0), session=first, epoch=0) > 0
    assert len(sessions) == 1


def test_old_versions_have_no_sessions(sessions):
    assert begun(sessions, ("a", 0, 0), version=6) == 0
    assert len(sessions) == 0


def test_shards_take_turns_and_an_id_tells_its_shard(sessions):
    ids = [begun(sessions, ("a", 0, 0)) for _ in range(SHARDS + 1)]
    assert [each // IDS_OF_A_SHARD for each in ids[:SHARDS]] == list(range(SHARDS))
    assert ids[SHARDS] == 0  # one slot in each, and nobody may displace a young session: answered without one
    assert len(sessions) == SHARDS


def test_fewer_slots_than_shards_are_none(time):
    sessions = FetchSessions(SHARDS - 1, time, Numbers())
    assert [begun(sessions, ("a", 0, 0)) for _ in range(SHARDS)] == [0] * SHARDS


@pytest.mark.parametrize("session", [-IDS_OF_A_SHARD, SHARDS * IDS_OF_A_SHARD, 2**31 - 1])
def test_ids_that_no_shard_has(sessions, session):
    for epoch in (0, 1, -1):
        assert refused(sessions, request(session=session, epoch=epoch)) == ErrorCode.UNKNOWN_SERVER_ERROR


def fill(sessions, count: int, *, privileged: bool = False) -> list[int]:
    """A session of `count` partitions in each shard."""
    names = [(f"t{i}", 0, 0) for i in range(count)]
    ids = [begun(sessions, *names, privileged=privileged) for _ in range(SHARDS)]
    assert all(ids)
    return ids


def test_one_that_was_idle_for_two_minutes_makes_room(sessions, time):
    ids = fill(sessions, 3)
    time.now_ms += EVICTION_MS
    assert begun(sessions, ("a", 0, 0)) == 0  # exactly two minutes are not enough
    sessions.open(request(session=ids[1], epoch=1), 12)
    time.now_ms += 1
    assert begun(sessions, ("a", 0, 0)) == 0  # the turn of the shard whose session was used
    assert begun(sessions, ("a", 0, 0)) > 0
    assert refused(sessions, request(session=ids[2], epoch=1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(request(session=ids[1], epoch=2), 12).session_id == ids[1]


def test_a_larger_one_displaces_a_smaller_one_that_is_not_young(sessions, time):
    ids = fill(sessions, 2)
    large = [("a", 0, 0), ("b", 0, 0), ("c", 0, 0)]
    assert begun(sessions, *large) == 0  # young
    time.now_ms += EVICTION_MS - 1
    for each in ids:
        sessions.open(request(session=each, epoch=1), 12)
    time.now_ms += 2
    assert begun(sessions, *large) == 0  # old, but young when it was last used
    for each in ids:
        sessions.open(request(session=each, epoch=2), 12)
    assert begun(sessions, *large[:2]) == 0  # not larger
    assert begun(sessions, *large) > 0
    sessions.open(request(("x", 0, 0), ("y", 0, 0), session=ids[4], epoch=3), 12)  # has four now
    assert begun(sessions, *large) == 0


def test_a_followers_session_displaces_a_consumers_at_once_and_not_the_other_way_round(sessions, time):
    fill(sessions, 3)
    followers = [begun(sessions, ("a", 0, 0), privileged=True) for _ in range(SHARDS)]
    assert all(followers)
    assert len(sessions) == SHARDS
    large = [("a", 0, 0), ("b", 0, 0)]
    assert begun(sessions, *large, privileged=True) == 0  # a young follower's stays
    for epoch in (1, 2):
        time.now_ms += EVICTION_MS - 10
        for each in followers:
            sessions.open(request(session=each, epoch=epoch), 12, privileged=True)
    assert begun(sessions, *large) == 0
    assert begun(sessions, *large, privileged=True) > 0
    assert begun(sessions, ("a", 0, 0), privileged=True) == 0  # not larger


def test_all_sessions_of_consumers_have_a_limit_of_partitions(sessions, monkeypatch):
    monkeypatch.setattr(fetch_sessions, "FEW_SESSION_PARTITIONS", 2)
    monkeypatch.setattr(fetch_sessions, "MAX_CACHED_PARTITIONS", 6)
    five = [(name, 0, 0) for name in "abcde"]
    first = begun(sessions, *five)
    assert sessions.size(first) == 5
    assert begun(sessions, *five) == 0
    few = begun(sessions, *five[:1])
    assert few > 0
    assert begun(sessions, *five, privileged=True) > 0
    grown = refused(sessions, request(("b", 0, 0), ("c", 0, 0), session=few, epoch=1))
    assert grown is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (sessions.size(few), sessions.size(0), sessions.size(-1 << 31)) == (0, 0, 0)
