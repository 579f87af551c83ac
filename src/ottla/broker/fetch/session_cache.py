"""Which fetch sessions a node keeps: as many, and the same ones, as Apache Kafka (KIP-227, KAFKA-9401).

The slots (max.incremental.fetch.session.cache.slots) are divided among eight shards, which take turns; a session's id
determines its shard. In a full shard a new session replaces a session that was not used for two minutes. Otherwise the
new session replaces the smallest session that it may displace. A follower's session may displace any consumer's
session. Every session may displace a session of its own kind that is two minutes old and has fewer partitions. If there
is no such session, the response has no session.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.fetch.sessions import FetchSession
    from ottla.env.seams import RandomSource

SHARDS = 8
IDS_OF_A_SHARD = 0x7FFFFFFF // SHARDS
EVICTION_MS = 120_000
"""Kafka has it as a constant too."""

EvictableKey = tuple[bool, int, int]
"""Whether it is a follower's, how many partitions it has, its id: the least goes first."""


def can_be_session_id(session_id: int) -> bool:
    """Whether the id belongs to a shard: Kafka answers UNKNOWN_SERVER_ERROR for any other id."""
    return -IDS_OF_A_SHARD < session_id < SHARDS * IDS_OF_A_SHARD


class FetchSessionShard:
    __slots__ = ("_by_all", "_by_privileged", "_number", "_random", "_slots", "sessions")

    def __init__(self, number: int, slots: int, random: RandomSource) -> None:
        self._number = number
        self._slots = slots
        self._random = random
        self.sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """Least recently used first."""
        self._by_all: list[EvictableKey] = []
        self._by_privileged: list[EvictableKey] = []

    def room(self, *, privileged: bool, size: int, now_ms: float) -> bool:
        """Whether a session of this size may be added; removes a session that the new session may displace."""
        if len(self.sessions) < self._slots:
            return True
        oldest = next(iter(self.sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self.remove(oldest.id)
            return True
        evictable = self._by_privileged if privileged else self._by_all
        if not evictable or (privileged, size, 0) < evictable[0]:
            return False
        self.remove(evictable[0][2])
        return True

    def new_id(self) -> int:
        """One that no session has; 0 means none."""
        first = self._number * IDS_OF_A_SHARD
        session_id = 0
        while session_id == 0 or session_id in self.sessions:
            session_id = first + int.from_bytes(self._random.token_bytes(4), "big") % IDS_OF_A_SHARD
        return session_id

    def touch(self, session: FetchSession, now_ms: float) -> None:
        """The session is used: it becomes the last to be evicted, and its eviction key may change."""
        session.last_used_ms = now_ms
        self.sessions[session.id] = session
        self.sessions.move_to_end(session.id)
        key = (session.privileged, len(session.partitions), session.id)
        old = now_ms - session.created_ms > EVICTION_MS
        if key == session.evictable_key and old == session.old:
            return
        self._forget_key(session)
        session.evictable_key, session.old = key, old
        if old or not session.privileged:
            insort(self._by_privileged, key)
        if old:
            insort(self._by_all, key)

    def remove(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self._forget_key(session)

    def _forget_key(self, session: FetchSession) -> None:
        key = session.evictable_key
        for keys in (self._by_all, self._by_privileged):
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                del keys[at]


class FetchSessionCache:
    def __init__(self, slots: int, random: RandomSource) -> None:
        self._shards = [FetchSessionShard(number, slots // SHARDS, random) for number in range(SHARDS)]
        self._turns = 0

    def __len__(self) -> int:
        return sum(len(shard.sessions) for shard in self._shards)

    @property
    def consumers_partitions(self) -> int:
        """Partitions of all sessions that are not a follower's."""
        return sum(len(s.partitions) for shard in self._shards for s in shard.sessions.values() if not s.privileged)

    def next_shard(self) -> FetchSessionShard:
        self._turns += 1
        return self._shards[(self._turns - 1) % SHARDS]

    def shard_of(self, session_id: int) -> FetchSessionShard:
        """The shard of an id, whether there is such a session or not."""
        if not can_be_session_id(session_id):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{session_id} is never the id of a fetch session")
        return self._shards[max(session_id, 0) // IDS_OF_A_SHARD]
