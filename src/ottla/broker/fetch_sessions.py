"""Incremental fetch sessions (KIP-227): a client names its partitions once and later only what changed.

A session remembers, for each partition, what the client asked for and what it was last told; an incremental response
leaves out partitions with nothing new. Sessions are bounded in number (max.incremental.fetch.session.cache.slots): a
new one may displace one that was idle for two minutes, otherwise the client is answered without a session.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest
from ottla.protocol.generated.fetch_response import PartitionData

if TYPE_CHECKING:
    from ottla.env.seams import Clock, RandomSource

FIRST_TOPIC_ID_VERSION = 13
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000


class PartitionKey(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int


class CachedPartition:
    """A partition of a session: the client's request for it, and what the last response said."""

    __slots__ = ("high_watermark", "known", "log_start_offset", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1
        self.known = False  # whether its topic id ever had a topic

    def remember(self, told: PartitionData) -> bool:
        """Keep what is being told; whether it is worth telling."""
        changed = (
            told.high_watermark != self.high_watermark
            or told.log_start_offset != self.log_start_offset
            or told.preferred_read_replica >= 0
            or bool(told.records)
            or told.error_code != 0
            or told.diverging_epoch.epoch >= 0
        )
        self.known = self.known or told.error_code != ErrorCode.UNKNOWN_TOPIC_ID
        self.high_watermark = -1 if told.error_code else told.high_watermark
        self.log_start_offset = told.log_start_offset
        return changed


class FetchSession:
    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[PartitionKey, CachedPartition] = OrderedDict()

    def add(self, request: FetchRequest) -> None:
        """What the request asks for. A session that begins has nothing to forget, whatever the request says."""
        for topic in request.topics:
            for item in topic.partitions:
                key = PartitionKey(topic.topic, topic.topic_id, item.partition)
                cached = self.partitions.get(key)
                if cached is None:
                    self.partitions[key] = CachedPartition(item)
                else:
                    cached.request = item

    def update(self, request: FetchRequest) -> None:
        self.add(request)
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.partitions.pop(PartitionKey(forgotten.topic, forgotten.topic_id, index), None)


class FetchContext:
    """How one fetch request is answered: over which partitions, and with or without a session."""

    __slots__ = ("incremental", "partitions", "session")

    def __init__(
        self, partitions: list[tuple[PartitionKey, FetchPartition]], session: FetchSession | None, *, incremental: bool
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id

    def was_known(self, key: PartitionKey) -> bool:
        """Whether this session has seen the partition's topic."""
        cached = None if self.session is None else self.session.partitions.get(key)
        return cached is not None and cached.known

    def told(self, answers: list[tuple[PartitionKey, PartitionData]]) -> list[tuple[PartitionKey, PartitionData]]:
        """What to put into the response; partitions that had data go to the end of the session's order."""
        session = self.session
        if session is None:
            return answers
        kept = []
        for key, data in answers:
            cached = session.partitions.get(key)
            if cached is None:
                continue
            worth = cached.remember(data)
            if worth or not self.incremental:
                kept.append((key, data))
            if data.records or not self.incremental:  # a new session has the order of its first answer
                session.partitions.move_to_end(key)
        return kept


class FetchSessions:
    """All sessions of a node, least recently used first."""

    def __init__(self, slots: int, clock: Clock, random: RandomSource) -> None:
        self._slots = slots
        self._clock = clock
        self._random = random
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int) -> FetchContext:
        """The context for a request; KafkaError when it names a session that is not as it says."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH) or version < 7:
            return self._full(request, version)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= FIRST_TOPIC_ID_VERSION):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.partitions:
            del self._sessions[session.id]
            return FetchContext([], None, incremental=False)
        session.epoch = session.epoch % 0x7FFFFFFF + 1
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(session.id)
        return FetchContext([(k, c.request) for k, c in session.partitions.items()], session, incremental=True)

    def _full(self, request: FetchRequest, version: int) -> FetchContext:
        if request.session_id:
            self._sessions.pop(request.session_id, None)
        partitions = [
            (PartitionKey(topic.topic, topic.topic_id, item.partition), item)
            for topic in request.topics
            for item in topic.partitions
        ]
        if version < 7 or request.session_epoch == FINAL_EPOCH:
            return FetchContext(partitions, None, incremental=False)
        return FetchContext(partitions, self._create(request, version), incremental=False)

    def _create(self, request: FetchRequest, version: int) -> FetchSession | None:
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < EVICTION_MS:
                return None
            del self._sessions[oldest.id]
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int.from_bytes(self._random.token_bytes(4), "big") & 0x7FFFFFFF
        session = FetchSession(session_id, uses_topic_ids=version >= FIRST_TOPIC_ID_VERSION, now_ms=now_ms)
        session.add(request)
        self._sessions[session_id] = session
        return session
