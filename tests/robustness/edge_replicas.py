"""Replicas as they lie on disk, read with the product's own batch reader: what each holds, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ottla.log.checkpoints import read_offsets
from ottla.log.file_names import HIGH_WATERMARK_CHECKPOINT
from ottla.model.ids import TopicPartition
from ottla.protocol.records_header import BatchHeader, crc_matches, iterate_batches
from ottla.protocol.records_walk import iterate_records
from ottla.runtime.disk import DiskStorage

Value = bytes | None


def batches(folder: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of a replica, in order; each has its checksum."""
    for file in sorted(folder.glob("*.log")):
        data = file.read_bytes()
        for position, header in iterate_batches(data):
            batch = data[position : position + header.size]
            assert crc_matches(batch, 0, header.size), f"{file}@{position}: the checksum is wrong"
            yield header, batch


def latest_values(folder: Path) -> dict[bytes, bytes]:
    """The last value of each key, as a reader of a compacted replica has it."""
    latest: dict[bytes, bytes] = {}
    for header, batch in batches(folder):
        if header.is_control:
            continue
        for record in iterate_records(batch):
            key = bytes(record.key or b"")
            if record.value is None:
                latest.pop(key, None)
            else:
                latest[key] = bytes(record.value)
    return latest


def high_watermark(folder: Path) -> int:
    """As its directory's checkpoint says after a clean stop."""
    offsets = read_offsets(DiskStorage(), f"{folder.parent}/{HIGH_WATERMARK_CHECKPOINT}")
    topic, _, index = folder.name.rpartition("-")
    return offsets[TopicPartition(topic, int(index))]


def assert_identical(replicas: list[Path], end: int | None = None) -> int:
    """Byte by byte, up to `end` (else up to the lowest high watermark); how many bytes were compared."""
    limit = min(map(high_watermark, replicas)) if end is None else end
    first = [(h.base_offset, batch) for h, batch in batches(replicas[0]) if h.base_offset < limit]
    for other in replicas[1:]:
        rows = [(h.base_offset, batch) for h, batch in batches(other) if h.base_offset < limit]
        for (offset, batch), (other_offset, other_batch) in zip(first, rows, strict=False):
            where = f"{replicas[0]} and {other} differ at {offset} (of {limit})"
            assert (offset, batch) == (other_offset, other_batch), f"{where}: {batch[:80]!r} {other_batch[:80]!r}"
        assert len(first) == len(rows), f"{replicas[0]} has {len(first)} batches below {limit}, {other} {len(rows)}"
    return sum(len(batch) for _, batch in first)
