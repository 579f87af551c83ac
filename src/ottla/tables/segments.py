"""Direct reads: a partition's segment files scanned without any broker, for backfills and topics as tables.

`LOG_DIR` is a broker's log directory (folders `topic-partition`). Files are mapped, never written or locked. Only whole
batches with a right CRC count: a torn tail ends the scan, as it ends recovery. The markers in the log show which
transactions were aborted. With read_committed a scan ends before the first transaction that is still open.
"""

from __future__ import annotations

import mmap
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.records import BatchHeader, crc_matches, iterate_batches
from ottla.tables.decode import Chunk, decode_chunk
from ottla.tables.fetch import FetchPlan, is_abort
from ottla.tables.slices import Later
from ottla.tables.topics import READ_COMMITTED, TableError

CHUNK_BYTES = 8 << 20
"""Decoded together: fewer pieces mean fewer small steps that wait for Python's lock."""
_CHECKED_AHEAD = 2
_COPIED_AHEAD = 1
_FOLDER = re.compile(r"^(.+)-(\d+)$")
_SEGMENT = re.compile(r"^(\d{20})\.log$")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    base_offset: int
    path: str


def list_partitions(log_dir: str) -> list[TopicPartition]:
    """All partitions that have a folder in `log_dir` (comma-separated for several)."""
    partitions = []
    for directory in _directories(log_dir):
        try:
            names = os.listdir(directory)
        except OSError as reason:
            raise TableError(f"the log directory {directory!r} cannot be read: {reason.strerror}") from reason
        for name in names:
            match = _FOLDER.match(name)
            if match and not name.endswith("-delete") and os.path.isdir(os.path.join(directory, name)):
                partitions.append(TopicPartition(match[1], int(match[2])))
    return sorted(partitions)


def segments(log_dir: str, partition: TopicPartition) -> list[SegmentFile]:
    for directory in _directories(log_dir):
        folder = os.path.join(directory, str(partition))
        if os.path.isdir(folder):
            files = [
                SegmentFile(int(match[1]), os.path.join(folder, name))
                for name in os.listdir(folder)
                if (match := _SEGMENT.match(name))
            ]
            return sorted(files, key=lambda segment: segment.base_offset)
    raise TableError(f"{partition} has no folder in {log_dir!r}")


def topic_id(log_dir: str, partition: TopicPartition) -> str:
    """The id in the folder's `partition.metadata`, as Kafka prints ids; empty if the folder has no such file."""
    for directory in _directories(log_dir):
        try:
            with open(os.path.join(directory, str(partition), "partition.metadata"), encoding="utf-8") as file:
                facts = dict(line.strip().split(": ", 1) for line in file if ": " in line)
        except OSError:
            continue
        return facts.get("topic_id", "")
    return ""


def bounds(log_dir: str, partition: TopicPartition, isolation_level: int = 0) -> tuple[int, int]:
    """The first offset, and the offset after the last whole batch (with read_committed: the last stable offset)."""
    files = segments(log_dir, partition)
    if not files:
        return 0, 0
    start = files[0].base_offset
    end = start
    open_transactions: dict[int, int] = {}
    for segment in files if isolation_level == READ_COMMITTED else files[-1:]:
        end = max(end, segment.base_offset)
        with _Mapped(segment.path) as data:
            for _, header in _whole_batches(data):
                end = header.next_offset
                if header.is_transactional and header.is_control:
                    open_transactions.pop(header.producer_id, None)
                elif header.is_transactional:
                    open_transactions.setdefault(header.producer_id, header.base_offset)
    return start, min([end, *open_transactions.values()]) if isolation_level == READ_COMMITTED else end


def first_offset_at(log_dir: str, partition: TopicPartition, timestamp_ms: int) -> int | None:
    """The offset of the first record at or after a time; None when there is none."""
    for segment in segments(log_dir, partition):
        with _Mapped(segment.path) as data:
            for at, header in _whole_batches(data):
                if header.max_timestamp >= timestamp_ms and header.record_count and not header.is_control:
                    chunk = Chunk()
                    chunk.add(data, at, header)
                    rows = decode_chunk(chunk, partition.topic, partition.partition, 0, 1 << 62)
                    stamps = rows.column("timestamp").cast(pa.int64()).to_pylist()
                    for offset, stamp in zip(rows.column("offset").to_pylist(), stamps, strict=True):
                        if stamp >= timestamp_ms * 1000:
                            return int(offset)
    return None


def scan_range(log_dir: str, plan: FetchPlan) -> Iterator[pa.RecordBatch]:
    """As `ottla.tables.fetch.read_range`, from the files."""
    files = segments(log_dir, plan.topic_partition)
    overlapping = [
        segment
        for segment, following in zip(files, [*files[1:], None], strict=True)
        if segment.base_offset < plan.end and (following is None or following.base_offset > plan.start)
    ]
    if plan.fail_on_data_loss and files and files[0].base_offset > plan.start:
        raise TableError(
            f"{plan.topic_partition}: offset {plan.start} is gone: the log starts at {files[0].base_offset}"
        )
    aborted = _aborted_ranges(files) if plan.isolation_level == READ_COMMITTED else {}
    pieces = (piece for segment in overlapping for piece in _pieces(segment, plan, aborted))
    yield from _decoded_ahead(pieces, plan)


class _Piece:
    """Batches of one file that are checked and decoded together."""

    def __init__(self, path: str) -> None:
        self.chunk = Chunk()
        self._path = path
        self._unchecked: list[tuple[memoryview, int, BatchHeader]] = []

    def __bool__(self) -> bool:
        return bool(self.chunk.headers or self._unchecked)

    def add(self, data: memoryview, at: int, header: BatchHeader) -> None:
        """A compressed batch with a right CRC is unpacked at once: its size counts for the size of the piece."""
        if header.compression and crc_matches(data, at, header.size):
            self.chunk.add(data, at, header)
            return
        self._unchecked.append((data, at, header))
        if not header.compression:
            self.chunk.add(data, at, header)

    def check(self) -> None:
        for data, at, header in self._unchecked:
            if not crc_matches(data, at, header.size):
                raise TableError(f"{self._path}: the batch at offset {header.base_offset} has a wrong CRC")
        self._unchecked.clear()  # views into the mapped file

    def decoded(self, plan: FetchPlan, later: Later) -> pa.RecordBatch:
        chunk, ends = self.chunk, (plan.start, plan.end)
        batch = decode_chunk(chunk, plan.topic, plan.partition, *ends, with_headers=plan.with_headers, later=later)
        chunk.clear()
        return batch


def _pieces(segment: SegmentFile, plan: FetchPlan, aborted: dict[int, list[tuple[int, int]]]) -> Iterator[_Piece]:
    with _Mapped(segment.path) as data:
        piece = _Piece(segment.path)
        for at, header in _whole_batches(data):
            if header.base_offset >= plan.end:
                break
            if header.last_offset < plan.start or header.is_control or header.record_count == 0:
                continue
            if header.is_transactional and _is_aborted(aborted, header.producer_id, header.base_offset):
                continue
            piece.add(data, at, header)
            if piece.chunk.size >= CHUNK_BYTES:
                yield piece
                piece = _Piece(segment.path)
        if piece:
            yield piece


def _decoded_ahead(pieces: Iterator[_Piece], plan: FetchPlan) -> Iterator[pa.RecordBatch]:
    """In order. A second thread checks and copies, which needs no lock of Python's, so both work at the same time."""
    with ThreadPoolExecutor(1, "scan") as pool:
        try:
            checked = _behind(_in_turn(_checks(pieces, pool)), _CHECKED_AHEAD)
            for batch in _behind(_in_turn(_decodes(checked, plan, pool)), _COPIED_AHEAD):
                yield batch()
        finally:
            pool.shutdown(cancel_futures=True)


def _checks(pieces: Iterator[_Piece], pool: ThreadPoolExecutor) -> Iterator[Callable[[], _Piece]]:
    for piece in pieces:
        yield partial(_after, [pool.submit(piece.check)], piece)


def _decodes(
    checked: Iterator[Callable[[], _Piece]], plan: FetchPlan, pool: ThreadPoolExecutor
) -> Iterator[Callable[[], pa.RecordBatch]]:
    for piece in checked:
        copies: list[Future[None]] = []
        batch = piece().decoded(plan, partial(_submit, pool, copies))
        yield partial(_after, copies, batch)


def _submit(pool: ThreadPoolExecutor, begun: list[Future[None]], work: Callable[[], None]) -> None:
    begun.append(pool.submit(work))


def _after(done: list[Future[None]], result: T) -> T:
    for copy in done:
        copy.result()
    return result


def _behind(results: Iterator[T], count: int) -> Iterator[T]:
    """So many are begun before the first is given out."""
    held: deque[T] = deque()
    for result in results:
        held.append(result)
        if len(held) > count:
            yield held.popleft()
    yield from held


def _in_turn(results: Iterator[Callable[[], T]]) -> Iterator[Callable[[], T]]:
    """A failure is raised in its turn: records before the damage are yielded first."""
    try:
        yield from results
    except (TableError, KafkaError) as failure:
        yield partial(_fail, failure)


def _fail(failure: Exception) -> Any:
    raise failure


def _aborted_ranges(files: list[SegmentFile]) -> dict[int, list[tuple[int, int]]]:
    """Per producer, the offsets of its aborted transactions: from the first batch to the marker."""
    first: dict[int, int] = {}
    ranges: dict[int, list[tuple[int, int]]] = {}
    for segment in files:
        with _Mapped(segment.path) as data:
            for at, header in _whole_batches(data):
                if not header.is_transactional:
                    continue
                if not header.is_control:
                    first.setdefault(header.producer_id, header.base_offset)
                    continue
                begin = first.pop(header.producer_id, None)
                if begin is not None and is_abort(data, at):
                    ranges.setdefault(header.producer_id, []).append((begin, header.base_offset))
    return ranges


def _is_aborted(ranges: dict[int, list[tuple[int, int]]], producer_id: int, offset: int) -> bool:
    return any(begin <= offset < end for begin, end in ranges.get(producer_id, ()))


def _whole_batches(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Batches up to the first that is torn or whose length cannot be (preallocated zeros at the end of a file)."""
    try:
        yield from iterate_batches(data)
    except KafkaError:
        return


def _directories(log_dir: str) -> list[str]:
    return [part.strip() for part in log_dir.split(",") if part.strip()]


class _Mapped:
    """A file as a memoryview for the time of a `with`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> memoryview:
        try:
            with open(self._path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
        except OSError as reason:
            raise TableError(f"{self._path} cannot be read: {reason.strerror}") from reason
        self._view = memoryview(self._map) if self._map is not None else memoryview(b"")
        return self._view

    def __exit__(self, *_: object) -> None:
        self._view = memoryview(b"")
        self._map = None  # the mapping goes with its last view
