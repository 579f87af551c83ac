"""Writes batches at given offsets, although a broker chooses the next offset itself.

Offsets before the first record are filled with empty records, which DeleteRecords removes. A hole between records is
filled with markers of transactions that are aborted at once: a marker is one offset, and no reader gets it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.cli.backup.manifest import BackupError
from ottla.client.cluster import TRANSACTION
from ottla.client.errors import check
from ottla.client.offsets import delete_records, end_offsets
from ottla.client.topics import leaders_of
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.generated.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.protocol.generated.end_txn_request import EndTxnRequest
from ottla.protocol.generated.end_txn_response import EndTxnResponse
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import ProduceResponse
from ottla.protocol.records_build import SimpleRecord, build_batch

if TYPE_CHECKING:
    from ottla.cli.backup.pieces import Piece
    from ottla.client.cluster import Cluster
    from ottla.client.connection import Answer
    from ottla.protocol.primitives import Message

_FILLER_RECORDS = 100_000
_ZSTD = 4
_PRODUCE_BY_NAME, _ADD_BY_CLIENT, _END_OF_CLIENT = 12, 3, 4
_TIMEOUT_MS = 60_000
_PAUSE_S = 0.005
_ALL_REPLICAS = -1


class PartitionWriter:
    def __init__(self, cluster: Cluster, topic: str, index: int, transactional_id: str) -> None:
        self._cluster, self._topic, self._index = cluster, topic, index
        self._transactional_id = transactional_id
        self._producer: tuple[int, int] | None = None
        self._position = 0

    def write(self, start: int, end: int, pieces: Iterable[Piece]) -> None:
        self._fill_start(start)
        for piece in pieces:
            if piece.first < self._position:
                raise BackupError(f"{self._topic}-{self._index}: the backup has the offset {piece.first} twice")
            self._fill_hole(piece.first)
            self._append(piece.batch, piece.record_count)
        self._fill_hole(end)

    def _fill_start(self, start: int) -> None:
        full = b""
        while self._position < start:
            count = min(_FILLER_RECORDS, start - self._position)
            if count < _FILLER_RECORDS or not full:
                full = bytes(build_batch([SimpleRecord(0, b"", b"")] * count, compression=_ZSTD))
            self._append(full, count)
        if start:
            answer = delete_records(self._cluster, {(self._topic, self._index): start})[self._topic, self._index]
            if isinstance(answer, KafkaError):
                raise answer

    def _append(self, batch: bytes, count: int) -> None:
        """Raises BackupError if the batch did not get the next offset: a different program writes to the topic."""
        data = [TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(self._index, batch)])]
        request = ProduceRequest(None, _ALL_REPLICAS, _TIMEOUT_MS, data)

        def attempt(deadline: float) -> int:
            del deadline  # each call has its own
            leader = leaders_of(self._cluster, [self._topic])[self._topic, self._index]
            answer = self._cluster.node_attempt(leader, request, ProduceResponse, _PRODUCE_BY_NAME)
            row = answer.responses[0].partition_responses[0]
            check(row.error_code, row.error_message)
            return row.base_offset

        offset = self._cluster.retried("produce", attempt)
        if offset != self._position:
            raise BackupError(
                f"{self._topic}-{self._index}: a record for offset {self._position} got the offset {offset}: a different "
                "program writes to the topic, or a request was repeated. `ottla backup restore --continue` restores the "
                "topic again"
            )
        self._position += count

    def _fill_hole(self, end: int) -> None:
        if self._position >= end:
            return
        while self._position < end:
            self._mark()
            self._position += 1
        self._wait_for_markers()

    def _wait_for_markers(self) -> None:
        """The coordinator answers when the outcome is certain; the last marker comes to the partition after the answer."""
        place = self._topic, self._index
        deadline = time.monotonic() + self._cluster.settings.api_timeout_ms / 1000
        while end_offsets(self._cluster, [place]).get(place, 0) < self._position:
            if time.monotonic() > deadline:
                raise BackupError(
                    f"{self._topic}-{self._index}: the marker before offset {self._position} does not come"
                )
            time.sleep(_PAUSE_S)

    def _mark(self) -> None:
        """One offset that no reader gets: the marker of an aborted transaction without records."""
        if self._producer is None:
            init = InitProducerIdRequest(self._transactional_id, _TIMEOUT_MS)
            made = self._ask(init, InitProducerIdResponse, lambda answer: answer.error_code, None)
            self._producer = made.producer_id, made.producer_epoch
        topics = [AddPartitionsToTxnTopic(self._topic, [self._index])]
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=topics,
        )
        self._ask(
            add,
            AddPartitionsToTxnResponse,
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            _ADD_BY_CLIENT,
        )
        end = EndTxnRequest(self._transactional_id, *self._producer, False)
        self._ask(end, EndTxnResponse, lambda answer: answer.error_code, _END_OF_CLIENT)

    def _ask(
        self, request: Message, answer: type[Answer], error: Callable[[Answer], int], highest: int | None
    ) -> Answer:
        """Again while the transaction before is still being completed."""
        deadline = time.monotonic() + self._cluster.settings.api_timeout_ms / 1000
        while True:
            response = self._cluster.coordinator_call(
                "restore", self._transactional_id, request, answer, error, kind=TRANSACTION, highest=highest
            )
            code = error(response)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                check(code)
                return response
            time.sleep(_PAUSE_S)
