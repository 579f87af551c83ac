"""Replays a partition's log into a machine, a piece at a time, so that the node keeps answering other requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ottla.coordinator.records import decode
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Offset, ProducerId
from ottla.protocol.primitives import DecodeError
from ottla.protocol.records import BatchHeader, ControlType, iterate_batches, iterate_records, parse_end_txn_marker

log = get_logger(__name__)

_LOGGED_CHARACTERS = 200
"""The logged part of a record that is not replayed: enough to identify its group."""
RECORDS_OF_A_STEP = 250
"""Some two milliseconds of the loop."""
_MOST_BYTES_READ = 256 * 1024
"""A read that finds nothing in the page cache holds the loop for this many bytes."""


class ReplayTarget(Protocol):
    def replay(self, offset: int, producer_id: ProducerId, record: Any) -> None: ...

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None: ...


class ReadableLog(Protocol):
    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    def read(self, offset: Offset, max_bytes: int) -> Slice: ...


class Slice(Protocol):
    def read(self) -> bytes: ...


class Loader:
    """From the log's start up to its end at the time the load began, in steps of some records."""

    def __init__(
        self,
        partition_log: ReadableLog,
        target: ReplayTarget,
        decode_record: Callable[[bytes, bytes | None], Any] = decode,
        *,
        max_bytes: int = _MOST_BYTES_READ,
    ) -> None:
        self.log = partition_log
        """May be replaced by a log of the same records: a move between directories does so."""
        self._target = target
        self._decode_record = decode_record
        self._max_bytes = min(max_bytes, _MOST_BYTES_READ)
        self._next_offset = partition_log.log_start_offset
        self._end_offset = partition_log.log_end_offset
        self._steps: Iterator[None] | None = None
        self.replayed = 0
        self.skipped = 0
        """Records of other group protocols, or unreadable records."""

    def load_some(self) -> bool:
        """Replay some records; True when nothing is left. After an error the next call reads from the same batch."""
        if self._steps is None:
            self._steps = self._replay_all()
        try:
            next(self._steps)
        except StopIteration:
            return True
        except (KafkaError, OSError):
            self._steps = None
            raise
        return False

    def _replay_all(self) -> Iterator[None]:
        while self._next_offset < self._end_offset:
            data = self.log.read(self._next_offset, self._max_bytes).read()
            before = self._next_offset
            for position, header in iterate_batches(data):
                if header.base_offset + header.last_offset_delta >= before:
                    yield from self._replay_readable(data, position, header)
                self._next_offset = header.base_offset + header.last_offset_delta + 1
            if self._next_offset == before:
                if data:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"No batch can be read at offset {before}.")
                return  # a log whose tail was compacted away ends in a gap: nothing more comes
            if self._next_offset < self._end_offset:
                yield

    def _replay_readable(self, data: bytes, position: int, header: BatchHeader) -> Iterator[None]:
        """Replay the records up to the first damaged record: the later records of the batch cannot be located."""
        try:
            yield from self._replay_batch(data, position, header)
        except KafkaError as error:
            log.error("coordinator_batch.not_read", base_offset=header.base_offset, reason=str(error))
            self.skipped += 1

    def _replay_batch(self, data: bytes, position: int, header: BatchHeader) -> Iterator[None]:
        if header.is_control:
            for record in iterate_records(data, position):
                marker = parse_end_txn_marker(record)
                if marker is not None:
                    committed = marker.control_type is ControlType.COMMIT
                    self._target.replay_end_transaction(header.producer_id, committed=committed)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in iterate_records(data, position):
            parsed = self._decode(record.key, record.value, record.offset)
            if parsed is not None:
                self._replay(record.offset, producer_id, parsed)
            self.replayed += 1
            if self.replayed % RECORDS_OF_A_STEP == 0:
                yield

    def _replay(self, offset: Offset, producer_id: ProducerId, parsed: Any) -> None:
        try:
            self._target.replay(offset, producer_id, parsed)
        except Exception as error:  # noqa: BLE001 - one odd record must not cost all that is kept in its partition
            facts = repr(parsed)[:_LOGGED_CHARACTERS]
            log.error("coordinator_record.not_replayed", offset=offset, record=facts, reason=repr(error))
            self.skipped += 1

    def _decode(self, key: bytes | None, value: bytes | None, offset: Offset) -> Any:
        try:
            parsed = self._decode_record(key or b"", value)
        except DecodeError as error:
            log.warning("coordinator_record.not_read", offset=offset, reason=str(error))
            parsed = None
        self.skipped += parsed is None
        return parsed
