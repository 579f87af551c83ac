"""Batches of a producer on their way, and the connection of a producer that waits for no answer (acks=0)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ottla.protocol.api import encode_request
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from ottla.model.ids import Uuid
    from ottla.protocol.primitives import Message
    from ottla.simulation.scenario.facts import SendAttempt, SentRecord

BATCH_BYTES = 16_384
"""batch.size of Kafka's producers."""
_RECORD_OVERHEAD = 24


@dataclass(slots=True)
class ProducerBatch:
    records: list[SentRecord]
    attempts: list[SendAttempt]
    sequence: int = -1
    under_way: bool = False
    given_up: bool = False
    """A later answer changes nothing."""
    retry_at_ms: float = 0.0
    tries: int = 0
    """Requests that reached a connection."""
    waits: int = field(default=0)
    """Pauses before the next attempt."""

    @property
    def created_ms(self) -> float:
        return self.records[0].created_ms


def records_of_a_batch(record_bytes: int) -> int:
    return max(1, BATCH_BYTES // (record_bytes + _RECORD_OVERHEAD))


def value_of(record_id: str, size: int) -> bytes:
    return record_id.encode().ljust(size)


def record_id_of(value: bytes | None) -> str:
    return (value or b"").rstrip().decode()


def encode(batch: ProducerBatch, record_bytes: int, producer_id: int, producer_epoch: int) -> bytes:
    records = [
        SimpleRecord(EPOCH_MS + int(record.created_ms), record.key, value_of(record.id, record_bytes))
        for record in batch.records
    ]
    if producer_id < 0:
        return bytes(build_batch(records))
    return bytes(
        build_batch(records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=batch.sequence)
    )


def request_for(topic_id: Uuid, partition: int, batch: bytes, acks: int, timeout_ms: float) -> ProduceRequest:
    data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(partition, batch)])
    return ProduceRequest(acks=acks, timeout_ms=int(timeout_ms), topic_data=[data])


class SilentConnection(asyncio.Protocol):
    """Requests go out, and no answer comes back. A lost connection is opened again by the next request."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._number = 0

    async def send(self, request: Message) -> None:
        """Raises OSError if the host refuses the connection."""
        if self._transport is None:
            await asyncio.get_running_loop().create_connection(lambda: self, self._host, self._port)
        if self._transport is None:
            raise ConnectionResetError("the connection was lost")
        self._number += 1
        self._transport.write(b"".join(encode_request(request, request.MAX_VERSION, self._number, "simulated")))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        del data

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None


def error_code_of(response: Any) -> tuple[int, int]:
    """Error code and base offset of an answer for one partition."""
    result = response.responses[0].partition_responses[0]
    return result.error_code, result.base_offset
