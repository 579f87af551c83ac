"""ISR proposals to the controller: one AlterPartition request at a time, with all pending proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.model.ids import Uuid
from ottla.protocol.generated.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from ottla.protocol.generated.alter_partition_response import AlterPartitionResponse
from ottla.protocol.generated.alter_partition_response import PartitionData as AlteredPartition
from ottla.replication.leader_state import Proposal

if TYPE_CHECKING:
    from ottla.env.seams import Timers
    from ottla.replication.context import ReplicaContext
    from ottla.replication.partition import Partition

log = get_logger(__name__)

RETRY_MS = 50

Send = Callable[[AlterPartitionRequest, Callable[[AlterPartitionResponse | None], None]], None]
"""Send to the active controller and call back with its response, or with None after a failure."""

Key = tuple[Uuid, int]


class IsrProposals:
    def __init__(self, context: ReplicaContext, timers: Timers, send: Send) -> None:
        self._context = context
        self._timers = timers
        self._send = send
        self._pending: dict[Key, Partition] = {}
        self._in_flight: dict[Key, tuple[Partition, Proposal]] = {}
        self._busy = False

    def propose(self, partition: Partition) -> None:
        """Send the pending proposal of the partition, together with all proposals of this turn of the loop."""
        self._pending[partition.topic_id, partition.topic_partition.partition] = partition
        if not self._busy:
            self._busy = True
            self._timers.call_soon(self._flush)

    def _flush(self) -> None:
        self._in_flight = {}
        topics: dict[Uuid, TopicData] = {}
        for key, partition in self._pending.items():
            leader_state = partition.leader_state
            if leader_state is None or leader_state.pending is None:
                continue
            proposal = leader_state.pending
            self._in_flight[key] = (partition, proposal)
            topic = topics.setdefault(key[0], TopicData(key[0], []))
            topic.partitions.append(
                PartitionData(
                    partition_index=key[1],
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[BrokerState(r, leader_state.epoch_of(r)) for r in proposal.isr],
                    leader_recovery_state=0,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        self._pending.clear()
        if not topics:
            self._busy = False
            return
        context = self._context
        self._send(
            AlterPartitionRequest(context.node_id, context.broker_epoch, list(topics.values())), self._on_response
        )

    def _on_response(self, response: AlterPartitionResponse | None) -> None:
        if response is None or response.error_code:
            if response is not None:
                log.warning("isr.not_altered", reason=ErrorCode(response.error_code).name)
            for key, (partition, _) in self._in_flight.items():
                self._pending.setdefault(key, partition)
            self._timers.call_later(RETRY_MS, self._flush)
            return
        retry = False
        answers = {(t.topic_id, p.partition_index): p for t in response.topics for p in t.partitions}
        for key, (partition, proposal) in self._in_flight.items():
            answer = answers.get(key)
            if answer is not None and self._settle(partition, proposal, answer):
                self._pending.setdefault(key, partition)
                retry = True
        if retry:
            self._timers.call_later(RETRY_MS, self._flush)
        elif self._pending:
            self._timers.call_soon(self._flush)
        else:
            self._busy = False

    def _settle(self, partition: Partition, proposal: Proposal, answer: AlteredPartition) -> bool:
        """Handle the response for a partition. Returns whether to send the proposal again."""
        if not answer.error_code:
            partition.isr_altered(proposal, tuple(answer.isr), answer.leader_epoch, answer.partition_epoch)
            return False
        code = ErrorCode(answer.error_code)
        log.info("isr.refused", partition=str(partition.topic_partition), isr=proposal.isr, reason=code.name)
        return partition.leader_state is not None and partition.leader_state.refused(proposal, code)
