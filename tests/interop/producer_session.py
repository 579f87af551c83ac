"""An idempotent producer made of raw requests: it knows its sequence number and can repeat or skip one."""

from __future__ import annotations

import time
from typing import NamedTuple

from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import ProduceResponse
from ottla.protocol.primitives import Message
from ottla.protocol.records import SimpleRecord, build_batch
from tests.support.frames import RawConnection

PRODUCE_VERSION = 9
INIT_VERSION = 4
COORDINATOR_LOAD_IN_PROGRESS = 14


class Answer(NamedTuple):
    error_code: int
    base_offset: int


def ask(connection: RawConnection, request: Message, version: int) -> bytes:
    """The response's body, behind its header (both APIs here are flexible at these versions)."""
    pieces: list[bytes] = []
    request.encode(pieces, version)  # type: ignore[arg-type]
    body = connection.request(type(request).API_KEY, version, b"".join(pieces), flexible=True)
    if body is None:
        raise ConnectionError(f"no answer to {type(request).__name__} v{version}")
    return body[1:]


def produce(port: int, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1) -> Answer:
    request = ProduceRequest(
        None, acks, 10_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])]
    )
    with RawConnection("127.0.0.1", port) as connection:
        response, _ = ProduceResponse.decode(ask(connection, request, PRODUCE_VERSION), 0, PRODUCE_VERSION)
    found = response.responses[0].partition_responses[0]
    return Answer(found.error_code, found.base_offset)


class ProducerSession:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequence = 0
        self._last = b""

    def begin(self, port: int) -> None:
        """Get an id; Kafka asks for patience while it has none."""
        deadline = time.monotonic() + 60
        with RawConnection("127.0.0.1", port) as connection:
            while True:
                body = ask(connection, InitProducerIdRequest(None, 60_000), INIT_VERSION)
                response, _ = InitProducerIdResponse.decode(body, 0, INIT_VERSION)
                if response.error_code != COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        if response.error_code:
            raise RuntimeError(f"InitProducerId: error {response.error_code}")
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    def send(self, port: int, count: int = 3) -> Answer:
        self._last = self._batch(self.sequence, count)
        self.sequence += count
        return produce(port, self.topic, self._last)

    def repeat(self, port: int) -> Answer:
        """The last batch once more, as after a lost answer."""
        return produce(port, self.topic, self._last)

    def skip(self, port: int) -> Answer:
        """A batch that claims records before it that were never sent."""
        return produce(port, self.topic, self._batch(self.sequence + 5, 1))

    def _batch(self, sequence: int, count: int) -> bytes:
        now_ms = time.time_ns() // 1_000_000  # a producer whose last record is a day old is forgotten at a restart
        records = [SimpleRecord(now_ms, b"key", b"%d" % n) for n in range(sequence, sequence + count)]
        identity = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        return bytes(build_batch(records, base_sequence=sequence, **identity))
