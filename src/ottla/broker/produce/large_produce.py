"""The batches of a Produce whose records are too many for the loop: walked elsewhere, then appended like the others.

The connection waits with its next request, so the order of a producer's batches stays. Everything that was checked
before the walk is checked again with the append: leadership, transactions and settings may have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.connection import CloseConnection
from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.produce.record_workers import RecordWorkers
from ottla.log.validation import ValidatedBatches, validate_produce
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.produce_request import PartitionProduceData, TopicProduceData
from ottla.protocol.generated.produce_response import PartitionProduceResponse, ProduceResponse
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.planes import ProducePlane


class LargeBatch:
    """One of them, and its place in the answer."""

    __slots__ = ("data", "partition", "response", "topic")

    def __init__(self, topic: TopicProduceData, data: PartitionProduceData, partition: Partition) -> None:
        self.topic = topic
        self.data = data
        self.partition = partition
        self.response = PartitionProduceResponse(data.index)

    def fill(self, result: PartitionProduceResponse) -> None:
        """The place in the answer is taken already; what came of the append goes into it."""
        for name in PartitionProduceResponse.__slots__:
            setattr(self.response, name, getattr(result, name))


def walked(
    context: RequestContext[ProducePlane],
    record_workers: RecordWorkers,
    large: list[LargeBatch],
    now_ms: int,
    append: Callable[[LargeBatch, ValidatedBatches | KafkaError], PartitionProduceResponse],
    finish: Callable[[], ProduceResponse | Deferred[ProduceResponse] | None],
) -> Deferred[ProduceResponse]:
    """`append` gets each batch with what the walk gave (batches or an error); then the answer of `finish`."""
    deferred: Deferred[ProduceResponse] = Deferred()
    waiting = len(large)

    def done(batch: LargeBatch, result: ValidatedBatches | BaseException) -> None:
        nonlocal waiting
        if isinstance(result, BaseException) and not isinstance(result, KafkaError):
            result = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the records cannot be walked: {result!r}")
        batch.fill(append(batch, result))
        waiting -= 1
        if waiting:
            return
        try:
            answer = finish()
        except CloseConnection as error:
            context.connection.refuse(str(error))
            answer = None
        if isinstance(answer, Deferred):
            answer.then(deferred.resolve)
        else:
            deferred.resolve(answer)

    for batch in large:
        # The receive buffer is not ours any more when this goes on.
        records = batch.data.records = bytearray(batch.data.records or b"")
        log = batch.partition.log
        work = partial(
            validate_produce, records, batch.partition.topic_partition, log.config, now_ms, version=context.version
        )
        record_workers.run(work, partial(done, batch))
    return deferred
