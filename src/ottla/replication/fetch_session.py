"""The follower's side of an incremental fetch session (KIP-227): name a partition once, then only when it changes."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.model.ids import Uuid
from ottla.protocol.generated.fetch_request import FetchPartition, FetchTopic, ForgottenTopic

INITIAL_EPOCH = 0
_MAX_EPOCH = 0x7FFFFFFF

Key = tuple[Uuid, int]


class FollowerSession:
    __slots__ = ("_told", "epoch", "id")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = INITIAL_EPOCH
        self._told: dict[Key, FetchPartition] = {}

    def reset(self) -> None:
        """The next request opens a new session with everything in it."""
        self.id = 0
        self.epoch = INITIAL_EPOCH
        self._told = {}

    def told(self, wanted: dict[Key, FetchPartition]) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What to name and what to take out so that the leader's session holds exactly `wanted`."""
        changed = [(key, item) for key, item in wanted.items() if not _same(self._told.get(key), item)]
        gone = [key for key in self._told if key not in wanted]
        self._told = wanted
        topics: dict[Uuid, FetchTopic] = {}
        for (topic_id, _), item in changed:
            topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[])).partitions.append(item)
        return list(topics.values()), _forgotten(gone)

    def answered(self, session_id: int) -> None:
        if self.epoch == INITIAL_EPOCH:
            self.id = session_id
            if session_id == 0:
                self._told = {}  # the leader keeps no session for us: name everything each time
                return
        self.epoch = self.epoch % _MAX_EPOCH + 1


def _same(told: FetchPartition | None, item: FetchPartition) -> bool:
    return (
        told is not None
        and told.fetch_offset == item.fetch_offset
        and told.current_leader_epoch == item.current_leader_epoch
        and told.log_start_offset == item.log_start_offset
        and told.last_fetched_epoch == item.last_fetched_epoch
    )


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(topics.values())
