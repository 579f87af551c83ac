"""Writing over our own wire client when the console acts as a user: librdkafka cannot log in with a delegation token.

One batch to one partition at a time, acknowledged by all replicas in sync, never sent twice: after an unknown outcome
the person decides.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Iterable, Iterator

from ottla.client.errors import ClientError
from ottla.client.settings import ClientSettings
from ottla.console.errors import ConsoleError
from ottla.console.messages.record import BrowsedRecord
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import ProduceResponse
from ottla.protocol.records_build import SimpleRecord, build_batch
from ottla.tables.topics import PartitionLeader, TableError, TopicMetadata

_WAIT_S = 20.0
_VERSION = 8
_BATCH_BYTES = 512 * 1024


class WireWriter:
    def __init__(self, settings: ClientSettings, topic: str) -> None:
        """ConsoleError when the topic is not there or not the user's to see."""
        self._metadata = TopicMetadata(settings, _WAIT_S)
        self._topic = topic
        try:
            self._leaders: dict[TopicPartition, PartitionLeader | None] = self._metadata.partitions([topic])
        except TableError as error:
            self.close()
            raise ConsoleError(str(error), status=403 if "authoriz" in str(error).lower() else 404) from error

    def close(self) -> None:
        self._metadata.close()

    def partition_for(self, key: bytes | None) -> int:
        """As librdkafka's default does: a CRC of the key, any partition without one."""
        count = len(self._leaders)
        return zlib.crc32(key) % count if key else secrets.randbelow(count)

    def send(self, partition: int, records: Iterable[SimpleRecord]) -> int:
        """The offset of the first record."""
        where = TopicPartition(self._topic, partition)
        leader = self._leaders.get(where)
        if leader is None:
            raise ConsoleError(f"{where} does not exist or has no leader now. Nothing was written.", status=404)
        data = PartitionProduceData(partition, bytes(build_batch(records)))
        request = ProduceRequest(None, -1, int(_WAIT_S * 1000), [TopicProduceData(self._topic, partition_data=[data])])
        deadline = time.monotonic() + _WAIT_S
        try:
            answer = self._metadata.connection(leader, deadline).call(request, ProduceResponse, deadline, _VERSION)
        except ClientError as error:
            raise ConsoleError(f"{self._topic} did not take the message: {error}", status=504) from error
        partition_response = answer.responses[0].partition_responses[0]
        if partition_response.error_code:
            code = ErrorCode(partition_response.error_code)
            forbidden = code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise ConsoleError(f"{self._topic} refused the message: {code.message}", status=403 if forbidden else 400)
        return partition_response.base_offset


def write_all(writer: WireWriter, batches: Iterator[list[BrowsedRecord]], *, keep_time: bool) -> int:
    """How many were written; ConsoleError after the first refusal, with the number that was written before."""
    written = 0
    for batch in batches:
        waiting: dict[int, list[SimpleRecord]] = {}
        for record in batch:
            at = record.timestamp_ms if keep_time and record.timestamp_ms >= 0 else int(time.time() * 1000)
            waiting.setdefault(writer.partition_for(record.key), []).append(
                SimpleRecord(at, record.key, record.value, record.headers)
            )
        for partition, records in waiting.items():
            for some in _sized(records):
                try:
                    writer.send(partition, some)
                except ConsoleError as error:
                    raise ConsoleError(
                        f"stopped after {written} messages: {error.message}", status=error.status
                    ) from error
                written += len(some)
    return written


def _sized(records: list[SimpleRecord]) -> Iterator[list[SimpleRecord]]:
    """Parts that fit into max.message.bytes of a topic with default settings; a larger record goes alone."""
    some: list[SimpleRecord] = []
    size = 0
    for record in records:
        length = len(record.key or b"") + len(record.value or b"") + 100
        if some and size + length > _BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append(record)
        size += length
    if some:
        yield some
