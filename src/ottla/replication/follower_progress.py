"""The progress of a follower as its leader sees it: fetch offset, time of the last catch-up, broker epoch.

Only a fetch of the follower and its removal from the ISR change the progress. Broker epochs only rise (KIP-903): a fetch
of a dead incarnation must not count for the current incarnation.
"""

from __future__ import annotations

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId, Offset

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class FollowerProgress:
    __slots__ = (
        "_last_fetch_leader_end",
        "_last_fetch_ms",
        "broker_epoch",
        "id",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, follower_id: NodeId, last_caught_up_ms: float) -> None:
        self.id = follower_id
        self.log_end_offset: Offset = UNKNOWN_OFFSET
        self.log_start_offset: Offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.last_caught_up_ms = last_caught_up_ms
        self._last_fetch_ms = last_caught_up_ms
        self._last_fetch_leader_end: Offset = 0

    def fetched(
        self, offset: Offset, log_start_offset: Offset, broker_epoch: int, leader_end: Offset, now_ms: float
    ) -> None:
        """The follower fetches from `offset`: its log holds all records before. Raises KafkaError for an old broker epoch."""
        if broker_epoch < self.broker_epoch and broker_epoch != UNKNOWN_EPOCH:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.id} has registered again since epoch {broker_epoch}"
            )
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self._last_fetch_leader_end:
            # The follower has all records that the leader had at the fetch before.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self._last_fetch_leader_end = leader_end
        self._last_fetch_ms = now_ms
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = max(broker_epoch, self.broker_epoch)

    def left_isr(self, last_caught_up_ms: float) -> None:
        """The controller has removed the follower from the ISR: its progress counts again from its next fetch. If the log
        directory of the replica has failed while its broker is alive, that fetch never comes.
        """
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = self._last_fetch_ms = last_caught_up_ms

    def is_caught_up(self, leader_end: Offset, now_ms: float, max_lag_ms: float) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= max_lag_ms
