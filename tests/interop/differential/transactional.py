"""A transactional producer made of raw requests, on both servers at once: every answer is compared."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.protocol.generated.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.protocol.generated.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.generated.describe_transactions_request import DescribeTransactionsRequest
from ottla.protocol.generated.end_txn_request import EndTxnRequest
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.list_transactions_request import ListTransactionsRequest
from ottla.protocol.generated.produce_request import ProduceRequest
from ottla.protocol.generated.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.interop.differential.batches import batch, produce
from tests.interop.differential.pair import Answers, Pair, Side, wait

SETTLED = ("Empty", "CompleteCommit", "CompleteAbort", "Ongoing")


def coordinator(pair: Pair) -> None:
    """Until the transaction topic exists and is loaded."""
    pair.wait(FindCoordinatorRequest("any", 1, ["any"]), 4, lambda a: a.coordinators[0].error_code == 0)
    pair.wait(DescribeTransactionsRequest(["any"]), 0, lambda a: a.transaction_states[0].error_code == 105)
    pair.wait(InitProducerIdRequest(None, 0), 4, lambda a: a.error_code == 0)


def await_markers(sides: Iterable[Side]) -> None:
    """Until no transaction is about to end: Apache Kafka acknowledges the end before the partitions hear of it."""
    ending = ListTransactionsRequest(["PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
    wait(sides, ending, 0, lambda a: a.error_code == 0 and not a.transaction_states)


class Producer:
    """`epoch` and `producer` of a method are added to what the side was given last, so that wrong ones can be sent."""

    def __init__(self, pair: Pair, suffix: str = "txn") -> None:
        self.pair = pair
        self.transactional_id = pair.name(suffix)
        self._sequences: dict[tuple[str, int], int] = {}

    def _id(self, side: Side) -> int:
        found: int = side.memory.get(f"{self.transactional_id}.id", 0)
        return found

    def _epoch(self, side: Side) -> int:
        found: int = side.memory.get(f"{self.transactional_id}.epoch", 0)
        return found

    def _keep(self) -> None:
        """The id and epoch of the last answer, when it has them."""
        for side in self.pair.sides:
            if side.last is not None and side.last.error_code == 0 and side.last.producer_id >= 0:
                side.memory[f"{self.transactional_id}.id"] = side.last.producer_id
                side.memory[f"{self.transactional_id}.epoch"] = side.last.producer_epoch
                self._sequences.clear()

    def init(self, version: int = 5, timeout_ms: int = 60_000, *, bump: bool = False, epoch: int = 0) -> None:
        def build(side: Side) -> InitProducerIdRequest:
            if bump:
                ids = (self._id(side), self._epoch(side) + epoch)
                return InitProducerIdRequest(self.transactional_id, timeout_ms, *ids)
            return InitProducerIdRequest(self.transactional_id, timeout_ms)

        self.pair.send(build, version)
        self._keep()

    def add(
        self, version: int, *partitions: tuple[str, int], verify: bool = False, producer: int = 0, epoch: int = 0
    ) -> None:
        names = dict.fromkeys(name for name, _ in partitions)
        topics = [AddPartitionsToTxnTopic(name, [p for n, p in partitions if n == name]) for name in names]

        def build(side: Side) -> AddPartitionsToTxnRequest:
            who = (self.transactional_id, self._id(side) + producer, self._epoch(side) + epoch)
            if version >= 4:
                return AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(*who, verify, topics)])
            return AddPartitionsToTxnRequest([], *who, topics)

        self.pair.send(build, version)

    def add_offsets(self, version: int, group: str, *, producer: int = 0, epoch: int = 0) -> None:
        self.pair.send(
            lambda side: AddOffsetsToTxnRequest(
                self.transactional_id, self._id(side) + producer, self._epoch(side) + epoch, group
            ),
            version,
        )

    def commit_offsets(
        self,
        version: int,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        metadata: str | None = "m",
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        producer: int = 0,
        epoch: int = 0,
    ) -> None:
        item = TxnOffsetCommitRequestPartition(partition, offset, -1, metadata)
        topics = [TxnOffsetCommitRequestTopic(topic, [item])]
        has_member = version >= 3

        def build(side: Side) -> TxnOffsetCommitRequest:
            request = TxnOffsetCommitRequest(
                self.transactional_id, group, self._id(side) + producer, self._epoch(side) + epoch, topics=topics
            )
            if has_member:
                request.generation_id, request.member_id, request.group_instance_id = generation, member, instance
            return request

        self.pair.send(build, version)

    def produce(
        self,
        topic: str,
        *values: bytes,
        version: int = 12,
        partition: int = 0,
        sequence: int | None = None,
        producer: int = 0,
        epoch: int = 0,
        transactional_id: str | None = "",
        transactional: bool = True,
    ) -> Answers:
        key = (topic, partition)
        first = self._sequences.get(key, 0) if sequence is None else sequence
        name = self.transactional_id if transactional_id == "" else transactional_id

        def build(side: Side) -> ProduceRequest:
            data = batch(
                *values,
                transactional=transactional,
                producer_id=self._id(side) + producer,
                producer_epoch=self._epoch(side) + epoch,
                base_sequence=first,
            )
            request = produce(topic, data, version=version, partition=partition, transactional_id=name)
            return request(side)  # type: ignore[return-value,operator]

        answers = self.pair.send(build, version)
        codes = [a.responses[0].partition_responses[0].error_code for a in answers if not isinstance(a, str)]
        if codes == [0, 0]:
            self._sequences[key] = first + len(values)
        return answers

    def end(
        self, version: int = 5, *, commit: bool = True, producer: int = 0, epoch: int = 0, settle: bool = True
    ) -> None:
        self.pair.send(
            lambda side: EndTxnRequest(
                self.transactional_id, self._id(side) + producer, self._epoch(side) + epoch, commit
            ),
            version,
        )
        if version >= 5:
            self._keep()
        if settle:
            self.settle()

    def settle(self) -> None:
        """Until the markers are written: Apache Kafka answers before that."""
        self.pair.wait(
            DescribeTransactionsRequest([self.transactional_id]),
            0,
            lambda a: a.transaction_states[0].error_code != 0 or a.transaction_states[0].transaction_state in SETTLED,
        )

    def describe(self) -> None:
        self.pair.send(DescribeTransactionsRequest([self.transactional_id]), 0)
