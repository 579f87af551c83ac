"""The follower's side of an incremental fetch session (KIP-227): name a partition once, then only when it changes."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.model.ids import Uuid
from ottla.protocol.generated.fetch_request import FetchPartition, FetchTopic, ForgottenTopic

INITIAL_EPOCH = 0
_MAX_EPOCH = 0x7FFFFFFF

Key = tuple[Uuid, int]


class FollowerSession:
    __slots__ = ("_partitions", "epoch", "id")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = INITIAL_EPOCH
        self._partitions: dict[Key, FetchPartition] = {}

    def reset(self) -> None:
        """The next request opens a new session with all partitions."""
        self.id = 0
        self.epoch = INITIAL_EPOCH
        self._partitions = {}

    def update(self, partitions: dict[Key, FetchPartition]) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """The topics to add and to remove so that the leader's session holds exactly `partitions`."""
        changed_partitions = [
            (key, partition) for key, partition in partitions.items() if not _same(self._partitions.get(key), partition)
        ]
        removed_keys = [key for key in self._partitions if key not in partitions]
        self._partitions = partitions
        topics: dict[Uuid, FetchTopic] = {}
        for (topic_id, _), partition in changed_partitions:
            topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[])).partitions.append(partition)
        return list(topics.values()), _forgotten(removed_keys)

    def on_response(self, session_id: int) -> None:
        if self.epoch == INITIAL_EPOCH:
            self.id = session_id
            if session_id == 0:
                self._partitions = {}  # the leader keeps no session: every request names all partitions
                return
        self.epoch = self.epoch % _MAX_EPOCH + 1


def _same(previous: FetchPartition | None, partition: FetchPartition) -> bool:
    return (
        previous is not None
        and previous.fetch_offset == partition.fetch_offset
        and previous.current_leader_epoch == partition.current_leader_epoch
        and previous.log_start_offset == partition.log_start_offset
        and previous.last_fetched_epoch == partition.last_fetched_epoch
    )


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(topics.values())
