"""Writing the markers that end a transaction: to the partitions that we lead, and by WriteTxnMarkers to other brokers.

The offsets topic's markers go through the group coordinator, which makes the offsets of the transaction count.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.transactions.remote_transactions import markers_codes, markers_request
from ottla.coordinator.runtime import EndOfTransaction, append_marker
from ottla.coordinator.transactions.markers import OnWritten
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane
    from ottla.protocol.generated.write_txn_markers_response import WriteTxnMarkersResponse
    from ottla.replication.partition import Partition

_NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""The transaction coordinator writes to leaders, not to group coordinators: it gets NOT_LEADER_OR_FOLLOWER for these
codes.
"""


class BrokerMarkers:
    """The coordinator's `MarkerChannel`: leaders are looked up in the metadata at each try."""

    def __init__(self, broker: TransactionPlane) -> None:
        self._broker = broker

    def write(self, end: EndOfTransaction, partitions: frozenset[TopicPartition], on_written: OnWritten) -> None:
        codes: dict[TopicPartition, ErrorCode] = {}
        by_leader: dict[NodeId, set[TopicPartition]] = {}
        for tp in sorted(partitions):
            registration = self._broker.image.partition(tp.topic, tp.partition)
            if registration is None:
                codes[tp] = ErrorCode.NONE
            elif registration.leader < 0:
                codes[tp] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(registration.leader, set()).add(tp)
        collect = _Collect(len(partitions), on_written)
        if codes:
            collect.add(codes)
        for leader, led in by_leader.items():
            if leader == self._broker.node_id:
                write_locally(self._broker, end, led, collect.add)
            else:
                request = markers_request(end, led)
                self._broker.peers.send(leader, request, partial(_on_answer, led, collect.add))


def _on_answer(led: set[TopicPartition], add: OnWritten, response: WriteTxnMarkersResponse | None) -> None:
    add(markers_codes(led, response))


class _Collect:
    def __init__(self, expected: int, done: OnWritten) -> None:
        self._expected = expected
        self._done = done
        self._codes: dict[TopicPartition, ErrorCode] = {}

    def add(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        self._codes.update(codes)
        if len(self._codes) == self._expected:
            self._done(self._codes)


def write_locally(
    broker: TransactionPlane, end: EndOfTransaction, partitions: set[TopicPartition], on_written: OnWritten
) -> None:
    """Append the marker to each; called back with a code for each, in one piece or in several."""
    codes: dict[TopicPartition, ErrorCode] = {}
    later: list[tuple[Partition, int]] = []
    for tp in sorted(partitions):
        try:
            partition = broker.replicas.get(tp.topic, tp.partition)
            if tp.topic == OFFSETS_TOPIC:
                broker.groups.shards[tp.partition].end_transaction(end, partial(_on_offsets_written, tp, on_written))
            else:
                end_offset = append_marker(partition, end, broker.clock.time_ms())
                if partition.high_watermark >= end_offset:
                    codes[tp] = ErrorCode.NONE
                else:
                    later.append((partition, end_offset))
        except KafkaError as error:
            in_charge = tp.topic == OFFSETS_TOPIC and error.code in _NOT_READY
            codes[tp] = ErrorCode.NOT_LEADER_OR_FOLLOWER if in_charge else error.code
    for partition, end_offset in later:
        _when_committed(broker, partition, end_offset, on_written)
    if codes:
        on_written(codes)


def _on_offsets_written(tp: TopicPartition, on_written: OnWritten, outcome: KafkaError | None) -> None:
    code = ErrorCode.NONE if outcome is None else outcome.code
    on_written({tp: ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code})


def _when_committed(broker: TransactionPlane, partition: Partition, end_offset: int, on_written: OnWritten) -> None:
    """A code once the marker is replicated, or REQUEST_TIMED_OUT; never both."""
    answered = False

    def answer(code: ErrorCode) -> None:
        nonlocal answered
        if not answered:
            answered = True
            timer.cancel()
            on_written({partition.topic_partition: code})

    timeout_ms = broker.config.request_timeout_ms
    timer = broker.timers.call_later(timeout_ms, partial(answer, ErrorCode.REQUEST_TIMED_OUT))
    partition.when_committed(end_offset, answer)
