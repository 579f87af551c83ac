"""Incremental fetch sessions (KIP-227): a client names its partitions once and later only what changed.

A session remembers, for each partition, the client's request and the last response. An incremental response leaves out
partitions with nothing new. A session begins with its first response; `session_cache` decides which sessions are
kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.broker.fetch.session_cache import EvictableKey, FetchSessionCache, can_be_session_id
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.pace import FEW, paced
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest
from ottla.protocol.generated.fetch_response import PartitionData

if TYPE_CHECKING:
    from ottla.env.seams import Clock, RandomSource
    from ottla.metadata.image import TopicImage

FIRST_TOPIC_ID_VERSION = 13
_new_tuple = tuple.__new__
"""Skips the argument handling of a NamedTuple's own constructor: every fetch makes keys."""
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_SESSION_PARTITIONS = 50_000
"""A request for more is answered without a session: each request of a session walks all of its partitions."""


FEW_SESSION_PARTITIONS = 256
MAX_CACHED_PARTITIONS = 1_000_000
"""Of all sessions of consumers, some 400 bytes each. Above it a consumer has a session for few partitions only."""


class PartitionKey(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int


class CachedPartition:
    """A partition of a session: the client's request for the partition, and the offsets in the last response."""

    __slots__ = ("high_watermark", "log_start_offset", "name", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1
        self.name: str | None = None
        """Of the topic that had its topic id when it was last looked for: it keeps the name when the topic is deleted."""

    def remember(self, data: PartitionData) -> bool:
        """Store the offsets of the response; returns whether an incremental response must include the partition."""
        changed = (
            data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.preferred_read_replica >= 0
            or bool(data.records)
            or data.error_code != 0
            or data.diverging_epoch.epoch >= 0
        )
        self.high_watermark = -1 if data.error_code else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return changed


FetchedPartition: TypeAlias = tuple[PartitionKey, PartitionData]


class FetchSession:
    __slots__ = (
        "created_ms", "epoch", "evictable_key", "id", "last_used_ms", "old", "partitions", "privileged", "uses_topic_ids",
    )  # fmt: skip

    def __init__(self, session_id: int, *, uses_topic_ids: bool, privileged: bool, now_ms: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.privileged = privileged
        """A follower's."""
        self.created_ms = self.last_used_ms = now_ms
        self.old = False
        self.evictable_key: EvictableKey = (privileged, -1, session_id)
        self.partitions: OrderedDict[PartitionKey, CachedPartition] = OrderedDict()

    def update(self, requested: Mapping[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        for key, item in requested.items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(item)
            else:
                cached.request = item
        for key in forgotten:
            self.partitions.pop(key, None)


RequestedPartitions: TypeAlias = list[tuple[PartitionKey, FetchPartition]]
Topics: TypeAlias = "Mapping[Uuid, TopicImage]"
Begin: TypeAlias = Callable[[list[FetchedPartition]], FetchSession | None]


class FetchContext:
    """How one fetch request is answered: over which partitions, and with or without a session."""

    __slots__ = ("_begin", "_epoch", "partitions", "session")

    def __init__(
        self, partitions: RequestedPartitions, session: FetchSession | None = None, begin: Begin | None = None
    ) -> None:
        self.partitions = partitions
        self.session = session
        self._begin = begin
        self._epoch = 0 if session is None else session.epoch

    @property
    def has_session(self) -> bool:
        """Whether the response belongs to a session, or begins one."""
        return self.session is not None or self._begin is not None

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id

    @property
    def overtaken(self) -> bool:
        """Whether the session went on with another request while this one waited."""
        return self.session is not None and self._epoch not in (0, self.session.epoch)

    def known_name(self, key: PartitionKey) -> str | None:
        """The name of the partition's topic, if this session has seen it."""
        cached = None if self.session is None else self.session.partitions.get(key)
        return None if cached is None else cached.name

    def response_partitions(
        self, answers: list[FetchedPartition], topics: Topics = MappingProxyType({})
    ) -> list[FetchedPartition]:
        """What to put into the response; partitions that had data go to the end of the session's order."""
        if self._begin is not None:
            self.session = self._begin(answers)
            self._begin = None
            if self.session is not None:
                for key, begun in self.session.partitions.items():
                    _note_name(begun, key, topics)
            return answers
        session = self.session
        if session is None:
            return answers
        kept = []
        for key, data in answers:
            cached = session.partitions.get(key)
            if cached is None:
                continue
            if cached.name is None:
                _note_name(cached, key, topics)
            if cached.remember(data):
                kept.append((key, data))
            if data.records:
                session.partitions.move_to_end(key)
        return kept


class FetchSessions:
    """All sessions of a node."""

    def __init__(self, slots: int, clock: Clock, random: RandomSource) -> None:
        self._clock = clock
        self._cache = FetchSessionCache(slots, random)

    def __len__(self) -> int:
        return len(self._cache)

    def size(self, session_id: int) -> int:
        """How many partitions the session has; 0 for one that does not exist."""
        if not can_be_session_id(session_id):
            return 0
        session = self._cache.shard_of(session_id).sessions.get(session_id)
        return 0 if session is None else len(session.partitions)

    def _has_room(self, size: int, more: int) -> bool:
        """Whether a consumer's session may have `size` partitions, `more` of which are not there yet."""
        if size <= FEW_SESSION_PARTITIONS:
            return True
        return size <= MAX_SESSION_PARTITIONS and self._cache.consumers_partitions + more <= MAX_CACHED_PARTITIONS

    def open(self, request: FetchRequest, version: int, *, privileged: bool = False) -> FetchContext:
        """The context for a request; KafkaError when the request does not fit the session that it names."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH) or version < 7:
            return self._full(request, version, privileged=privileged)
        # No other request runs from here on: the session's epoch is checked and moved in one step.
        requested, forgotten = _requested(request), _forgotten(request)
        shard = self._cache.shard_of(request.session_id)
        session = shard.sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= FIRST_TOPIC_ID_VERSION):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(requested, forgotten)
        size = len(session.partitions)
        if requested and (size > MAX_SESSION_PARTITIONS if session.privileged else not self._has_room(size, 0)):
            shard.remove(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            shard.remove(session.id)
            return FetchContext(list(requested.items()))  # partitions that it adds and forgets are answered
        session.epoch = session.epoch % 0x7FFFFFFF + 1
        shard.touch(session, self._clock.monotonic_ms())
        return FetchContext([(k, c.request) for k, c in session.partitions.items()], session)

    def _full(self, request: FetchRequest, version: int, *, privileged: bool) -> FetchContext:
        if request.session_id:
            self._cache.shard_of(request.session_id).remove(request.session_id)
        partitions = _requested(request)
        requested = list(partitions.items())
        if version < 7 or request.session_epoch == FINAL_EPOCH:
            return FetchContext(requested)

        def begin(answers: list[FetchedPartition]) -> FetchSession | None:
            return self._begin(
                partitions, answers, uses_topic_ids=version >= FIRST_TOPIC_ID_VERSION, privileged=privileged
            )

        return FetchContext(requested, begin=begin)

    def _begin(
        self,
        requested: dict[PartitionKey, FetchPartition],
        answers: list[FetchedPartition],
        *,
        uses_topic_ids: bool,
        privileged: bool,
    ) -> FetchSession | None:
        """A session with the partitions in the order of its first answer, if there is room for one."""
        size = len(answers)
        if size > MAX_SESSION_PARTITIONS if privileged else not self._has_room(size, size):
            return None
        shard = self._cache.next_shard()
        now_ms = self._clock.monotonic_ms()
        if not shard.room(privileged=privileged, size=len(answers), now_ms=now_ms):
            return None
        session = FetchSession(shard.new_id(), uses_topic_ids=uses_topic_ids, privileged=privileged, now_ms=now_ms)
        for key, data in answers:
            session.partitions[key] = cached = CachedPartition(requested[key])
            cached.remember(data)
        shard.touch(session, now_ms)
        return session


def _note_name(cached: CachedPartition, key: PartitionKey, topics: Topics) -> None:
    if key.topic:
        cached.name = key.topic
    elif (topic := topics.get(key.topic_id)) is not None:
        cached.name = topic.name


def _requested(request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
    """Of a partition that is named twice the last counts."""
    topics = request.topics
    return {
        _new_tuple(PartitionKey, (topic.topic, topic.topic_id, item.partition)): item
        for topic in (topics if len(topics) < FEW else paced(topics))
        for item in (topic.partitions if len(topic.partitions) < FEW else paced(topic.partitions, 2))
    }


def _forgotten(request: FetchRequest) -> list[PartitionKey]:
    return [
        PartitionKey(topic.topic, topic.topic_id, index)
        for topic in paced(request.forgotten_topics_data)
        for index in paced(topic.partitions)
    ]
