"""From options to offset ranges: where a read begins and ends, how a trigger is limited, how ranges are split.

Pure but for the `Log` that it asks. The rules (what must be named, what a missing time means, how a limit is shared out)
are those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines.logs import Log
from ottla.pipelines.options import Bounds, Limit, ReadOptions
from ottla.protocol.offset_timestamps import EARLIEST, LATEST


class OffsetRange(NamedTuple):
    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        return self.end - self.start


def resolved_offsets(log: Log, limit: Limit, partitions: list[TopicPartition], *, missing_is_latest: bool) -> Bounds:
    """The offset of each partition that the limit names. `missing_is_latest`: a time after the last record means the end."""
    if limit.word is not None:
        return log.earliest(partitions) if limit.word == EARLIEST else log.latest(partitions)
    places = limit.offsets or limit.timestamps_ms
    if limit.timestamp_ms is not None:
        places = dict.fromkeys(partitions, limit.timestamp_ms)
    if set(places) != set(partitions):
        different = ", ".join(map(str, sorted(set(places) ^ set(partitions))))
        raise UserError(f"{limit.name} must name each partition that is read, and no other: {different}")
    if limit.offsets:
        return _words_resolved(log, limit.offsets)
    resolved = log.at_times(places)
    missing = [partition for partition, offset in resolved.items() if offset is None]
    if missing and not missing_is_latest:
        raise UserError(
            f"{limit.name}: {', '.join(map(str, missing))} has no record at or after that time; "
            "set startingOffsetsByTimestampStrategy to latest to begin at the end"
        )
    ends = log.latest(missing) if missing else {}
    return {partition: ends[partition] if offset is None else offset for partition, offset in resolved.items()}


def _words_resolved(log: Log, offsets: Bounds) -> Bounds:
    earliest = [partition for partition, offset in offsets.items() if offset == EARLIEST]
    latest = [partition for partition, offset in offsets.items() if offset == LATEST]
    resolved = dict(offsets)
    if earliest:
        resolved.update(log.earliest(earliest))
    if latest:
        resolved.update(log.latest(latest))
    return resolved


def check_bounds(log: Log, options: ReadOptions, start: Bounds, end: Bounds) -> tuple[Bounds, Bounds]:
    """What is asked for must be there; with failOnDataLoss off it is cut to what is. A word is the log's own bound."""
    if options.pins is None and options.starting.word is not None and options.ending.word is not None:
        return start, end
    first = log.earliest(start)
    last = log.latest(start)
    for partition in start:
        low, high = first[partition], last[partition]
        if start[partition] < low or start[partition] > high or end[partition] > high:
            if options.fail_on_data_loss:
                raise UserError(
                    f"{partition}: offsets {start[partition]} to {end[partition]} were asked for, {low} to {high} are "
                    "there; ask for those, or set failOnDataLoss to false to read what is there"
                )
            start[partition] = min(max(start[partition], low), high)
            end[partition] = min(max(end[partition], start[partition]), high)
    return start, end


def limited(start: Bounds, end: Bounds, max_offsets: int) -> Bounds:
    """At most about `max_offsets` over all partitions, each by its share of what is waiting."""
    sizes = {partition: offset - start[partition] for partition, offset in end.items() if offset > start[partition]}
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(end)
    limited = dict(end)
    for partition, size in sizes.items():
        share = max_offsets * size / total
        step = int(share) if share >= 1 else 1
        limited[partition] = min(start[partition] + step, end[partition])
    return limited


def split(ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Ranges in a fixed order, large ones cut so that at least `min_partitions` tasks have work."""
    parts = sorted(part for part in ranges if part.size > 0)
    if max_records:
        parts = [piece for part in parts for piece in _cut(part, -(-part.size // max_records))]
    if not min_partitions or len(parts) >= min_partitions or not parts:
        return parts
    total = sum(part.size for part in parts)
    small = [part for part in parts if part.size * min_partitions <= total]
    large = [part for part in parts if part.size * min_partitions > total]
    room = max(1, min_partitions - len(small))
    large_total = sum(part.size for part in large)
    pieces = [piece for part in large for piece in _cut(part, -(-room * part.size // large_total))]
    return sorted([*small, *pieces])


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, whole.size)
    edges = [whole.start + whole.size * i // parts for i in range(parts + 1)]
    return [whole._replace(start=low, end=high) for low, high in pairwise(edges)]
