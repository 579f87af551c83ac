"""Share sessions: a member names its partitions once and later only what changed.

One session for each member, tied to the connection that opened it: when that closes, what the member has goes back.
Bounded by group.share.max.share.sessions, and by how many partitions a session and all of them may have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFFFFFF
FEW_PARTITIONS = 256
MAX_SESSION_PARTITIONS = 10_000
MAX_CACHED_PARTITIONS = 500_000
"""Of all sessions. Above it a member has a session of few partitions only."""


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


Place = tuple[Uuid, int]


class ShareSession:
    __slots__ = ("connection", "epoch", "partitions")

    def __init__(self, connection: object, places: Iterable[Place]) -> None:
        self.connection = connection
        self.epoch = 1
        self.partitions: dict[Place, bool] = dict.fromkeys(places, False)
        """Whether the next response must include the partition, also without news."""

    def update(self, added: Iterable[Place], forgotten: Iterable[Place]) -> None:
        for place in added:
            self.partitions.setdefault(place, True)
        for place in forgotten:
            self.partitions.pop(place, None)

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def is_included(self, place: Place, *, records: bool, error: bool) -> bool:
        """Whether the response includes the partition. After an error, the next response includes the partition too."""
        due = self.partitions.get(place, False)
        if place in self.partitions:
            self.partitions[place] = error
            if records:  # those that had something go to the end
                self.partitions[place] = self.partitions.pop(place)
        return records or error or due


class ShareSessions:
    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def size(self, key: SessionKey) -> int:
        session = self._sessions.get(key)
        return 0 if session is None else len(session.partitions)

    def has_room(self, size: int, more: int) -> bool:
        """Whether a session may have `size` partitions, `more` of which are not there yet."""
        if size <= FEW_PARTITIONS:
            return True
        return size <= MAX_SESSION_PARTITIONS and self.partition_count + more <= MAX_CACHED_PARTITIONS

    def begin(self, key: SessionKey, connection: object, places: Collection[Place]) -> ShareSession:
        """Begin a session; it replaces an earlier session of the member."""
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._most() or not self.has_room(len(places), len(places)):
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(connection, places)
        return session

    def find(self, key: SessionKey, epoch: int) -> ShareSession:
        """KafkaError unless there is a session at this epoch; the last request of a session may come at any epoch."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return session

    def end(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.pop(key, None)

    def of_connection(self, connection: object) -> list[SessionKey]:
        return [key for key, session in self._sessions.items() if session.connection is connection]

    def has_group(self, group_id: str) -> bool:
        return any(key.group_id == group_id for key in self._sessions)
