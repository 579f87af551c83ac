"""Batch and streaming reads behind Spark's DataSource API. Readers hold options only: they are pickled to the workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as api
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.model.ids import TopicPartition
from ottla.pipelines import history, pins, ranges
from ottla.pipelines.logs import Log, LogIdentity, open_log
from ottla.pipelines.options import Bounds, ReadOptions
from ottla.pipelines.positions import Positions, Split
from ottla.tables.fetch import FetchPlan


class RangePartition(api.InputPartition):
    def __init__(self, offset_range: ranges.OffsetRange) -> None:
        super().__init__(tuple(offset_range))

    @property
    def range(self) -> ranges.OffsetRange:
        return ranges.OffsetRange(*self.value)


def read_one(options: ReadOptions, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker: opens its own connection."""
    if not isinstance(partition, RangePartition):
        return
    offset_range = partition.range
    log = open_log(options)
    try:
        plan = FetchPlan(
            topic=offset_range.topic,
            partition=offset_range.partition,
            start=offset_range.start,
            end=offset_range.end,
            isolation_level=options.isolation_level,
            with_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
            topic_id=offset_range.topic_id,
            leader_epoch=offset_range.leader_epoch,
            skip_recreated=options.restart_recreated,
        )
        yield from log.read(plan)
    finally:
        log.close()


class BatchReader(api.DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._filters: list[tuple[str, str, Any]] = []

    def pushFilters(self, filters: list[api.Filter]) -> Iterator[api.Filter]:  # noqa: N802 - Spark's name
        """Partitions, offsets and times cut the ranges; Spark still checks each row, so a cut may be generous."""
        for predicate in filters:
            column = getattr(predicate, "attribute", ("",))[0]
            if column in {"partition", "offset", "timestamp", "topic"} and hasattr(predicate, "value"):
                self._filters.append((column, type(predicate).__name__, predicate.value))
            yield predicate

    def partitions(self) -> Sequence[api.InputPartition]:
        options = self._options
        log = open_log(options)
        try:
            partitions, end, identities = self._ends(log)
            start = ranges.resolved_offsets(
                log, options.starting, partitions, missing_is_latest=options.latest_when_no_timestamp
            )
            start, end = ranges.check_bounds(log, options, start, end)
            offset_ranges = [
                ranges.OffsetRange(*partition, start[partition], end[partition], *identities[partition])
                for partition in partitions
            ]
            offset_ranges = [cut for offset_range in offset_ranges if (cut := self._cut(log, offset_range))]
        finally:
            log.close()
        pieces = ranges.split(offset_ranges, options.min_partitions, options.max_records_per_partition)
        # Spark runs one task with the value None when the list is empty; `read_one` gives it nothing.
        return [RangePartition(piece) for piece in pieces]

    def _ends(self, log: Log) -> tuple[list[TopicPartition], Bounds, Mapping[TopicPartition, LogIdentity]]:
        options = self._options
        if options.pins is None:
            partitions = log.partitions(options)
            ends = ranges.resolved_offsets(log, options.ending, partitions, missing_is_latest=True)
            return partitions, ends, log.identities(partitions)
        positions = pins.pinned(options.pins, StreamReader(options).now)
        identities = {
            partition: LogIdentity(
                positions.topic_ids.get(partition.topic, ""), positions.leader_epochs.get(partition, -1)
            )
            for partition in positions.offsets
        }
        return sorted(positions.offsets), dict(positions.offsets), identities

    def _cut(self, log: Log, offset_range: ranges.OffsetRange) -> ranges.OffsetRange | None:
        start, end = offset_range.start, offset_range.end
        for column, kind, value in self._filters:
            if column in {"partition", "topic"}:
                if kind == "EqualTo" and getattr(offset_range, column) != value:
                    return None
                if kind == "In" and getattr(offset_range, column) not in value:
                    return None
            elif column == "offset" and isinstance(value, int):
                if kind in {"EqualTo", "GreaterThan", "GreaterThanOrEqual"}:
                    start = max(start, value + (kind == "GreaterThan"))
                if kind in {"EqualTo", "LessThan", "LessThanOrEqual"}:
                    end = min(end, value + (kind != "LessThan"))
            elif column == "timestamp" and isinstance(value, datetime):
                start = max(start, self._at_time(log, offset_range, kind, value))
        return offset_range._replace(start=start, end=end) if start < end else None

    @staticmethod
    def _at_time(log: Log, offset_range: ranges.OffsetRange, kind: str, value: datetime) -> int:
        """The start of the range, cut to the first record at or after the time. The end is not cut: times may decrease."""
        if kind not in {"EqualTo", "GreaterThan", "GreaterThanOrEqual"}:
            return offset_range.start
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        partition = TopicPartition(offset_range.topic, offset_range.partition)
        timestamp_ms = int(moment.timestamp() * 1000)
        if timestamp_ms <= 0:  # the protocol has other meanings for times below 0
            return offset_range.start
        offset = log.at_times({partition: timestamp_ms})[partition]
        return offset_range.end if offset is None else offset

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        return read_one(self._options, partition)


class StreamReader(api.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are JSON as in the checkpoints of Spark's own source, with topic ids and epochs beside them (positions.py)."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._log: Log | None = None
        self._target: Positions | None = None
        self._last_trigger: float | None = None
        """The time of the last batch; the first batch after a start never waits, as in Spark's own source."""

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the options; connections stay here."""
        return self.__dict__ | {"_log": None}

    @property
    def log(self) -> Log:
        if self._log is None:
            self._log = open_log(self._options)
        return self._log

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        return self._bound(
            lambda partitions: ranges.resolved_offsets(
                self.log, options.starting, partitions, missing_is_latest=options.latest_when_no_timestamp
            )
        ).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self.now()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.max_offsets_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        before = Positions.from_json(start)
        latest = self._target if self._target is not None else self.now()
        begins = history.new_beginnings(self.log, options, before, latest)
        begun = history.kept(before, latest) | begins
        ends = {partition: latest.offsets.get(partition, offset) for partition, offset in begun.items()}
        waiting = sum(ends[partition] - begun[partition] for partition in begun)
        if self._target is None and not self._is_due(waiting):
            return start
        if isinstance(limit, ReadMaxRows) and options.max_offsets_per_trigger:
            ends = ranges.limited(begun, ends, limit.max_rows)
        self._last_trigger = time.monotonic()
        topic_ids = {**before.topic_ids, **latest.topic_ids}
        if not begins and ends == before.offsets and topic_ids == before.topic_ids:
            return start  # Spark runs a batch for any change of the text, also of an epoch
        return replace(latest, offsets=ends, begins=begins, topic_ids=topic_ids).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self.now().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[api.InputPartition]:
        ended = Positions.from_json(end)
        begun = Positions.from_json(start).offsets | ended.begins
        new = [partition for partition in ended.offsets if partition not in begun]
        if new:  # a batch that an earlier version planned
            begun.update(self.log.earliest(new))
        offset_ranges = [
            ranges.OffsetRange(
                *partition,
                begun[partition],
                offset,
                ended.topic_ids.get(partition.topic, ""),
                ended.leader_epochs.get(partition, -1),
            )
            for partition, offset in ended.offsets.items()
        ]
        pieces = ranges.split(offset_ranges, *(ended.split or self._split))
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        return read_one(self._options, partition)

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def _split(self) -> Split:
        return self._options.min_partitions, self._options.max_records_per_partition

    def now(self) -> Positions:
        return self._bound(self.log.latest)

    def _bound(self, listed: Callable[[list[TopicPartition]], Bounds]) -> Positions:
        """Offsets with what they are bound to. The epoch is read after the offsets: an earlier epoch may have ended
        before them, which would look like a log that was cut."""
        partitions = self.log.partitions(self._options)
        ids = _topic_ids(self.log.identities(partitions))
        while True:
            offsets = listed(partitions)
            identities = self.log.identities(partitions)
            if _topic_ids(identities) == ids:
                break
            ids = _topic_ids(identities)  # a topic was created again meanwhile: its offsets are listed again
        epochs = {partition: identity.leader_epoch for partition, identity in identities.items()}
        return Positions(
            offsets=offsets,
            topic_ids=ids,
            leader_epochs={partition: epoch for partition, epoch in epochs.items() if epoch >= 0},
            split=self._split,
        )

    def _is_due(self, waiting: int) -> bool:
        least = self._options.min_offsets_per_trigger
        if not least or waiting >= least:
            return True
        last = self._last_trigger
        return last is None or (time.monotonic() - last) * 1000 >= self._options.max_trigger_delay_ms


def _topic_ids(identities: Mapping[TopicPartition, LogIdentity]) -> dict[str, str]:
    return {partition.topic: identity.topic_id for partition, identity in identities.items() if identity.topic_id}
