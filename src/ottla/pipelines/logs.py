"""Where records are read from: a cluster over the wire, or a log directory. The rest of the source uses only `Log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines.options import Bounds, ReadOptions
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.tables import segments
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.topics import TopicMetadata, settings_from


class LogIdentity(NamedTuple):
    """What an offset is bound to. An empty id and the epoch -1 mean that the log has none."""

    topic_id: str
    leader_epoch: int


class Log(Protocol):
    def partitions(self, options: ReadOptions) -> list[TopicPartition]: ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> Bounds: ...

    def latest(self, partitions: Iterable[TopicPartition]) -> Bounds: ...

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]: ...

    def identities(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogIdentity]: ...

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Bounds: ...

    def read(self, plan: FetchPlan) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


def open_log(options: ReadOptions) -> Log:
    return DirectoryLog(options) if options.path else WireLog(options)


class WireLog:
    def __init__(self, options: ReadOptions) -> None:
        self._isolation_level = options.isolation_level
        self._settings = settings_from(options.client)
        self._metadata = TopicMetadata(self._settings)

    def partitions(self, options: ReadOptions) -> list[TopicPartition]:
        if options.assign:
            there = self._metadata.states({partition.topic for partition in options.assign})
            for partition in options.assign:
                if partition not in there:
                    raise UserError(f"{partition} does not exist: the topic has fewer partitions")
            return sorted(options.assign)
        topics = options.subscribe
        if options.subscribe_pattern is not None:
            topics = tuple(self._metadata.topics_like(options.subscribe_pattern))
        return sorted(self._metadata.states(topics)) if topics else []

    def earliest(self, partitions: Iterable[TopicPartition]) -> Bounds:
        offsets = self._metadata.offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: offset or 0 for partition, offset in offsets.items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> Bounds:
        offsets = self._metadata.offsets(dict.fromkeys(partitions, LATEST), isolation_level=self._isolation_level)
        return {partition: offset or 0 for partition, offset in offsets.items()}

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._metadata.offsets(timestamps, isolation_level=self._isolation_level)

    def identities(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogIdentity]:
        chosen = set(partitions)
        states = self._metadata.states({partition.topic for partition in chosen}) if chosen else {}
        return {
            partition: LogIdentity(state.topic_id, state.leader_epoch)
            for partition, state in states.items()
            if partition in chosen
        }

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Bounds:
        return self._metadata.epoch_ends(epochs)

    def read(self, plan: FetchPlan) -> Iterator[pa.RecordBatch]:
        return read_range(self._settings, plan)

    def close(self) -> None:
        self._metadata.close()


class DirectoryLog:
    def __init__(self, options: ReadOptions) -> None:
        self._path = options.path or ""
        self._isolation_level = options.isolation_level

    def partitions(self, options: ReadOptions) -> list[TopicPartition]:
        import re

        there = segments.list_partitions(self._path)
        if options.assign:
            return sorted(set(options.assign) & set(there)) or self._nothing(options)
        if options.subscribe_pattern is not None:
            matches = re.compile(options.subscribe_pattern).fullmatch
            return [partition for partition in there if matches(partition.topic)]
        missing = set(options.subscribe) - {partition.topic for partition in there}
        if missing:
            return self._nothing(options)
        return [partition for partition in there if partition.topic in options.subscribe]

    def _nothing(self, options: ReadOptions) -> list[TopicPartition]:
        raise UserError(f"{options.what} has no folder in {self._path!r}: is it the log.dirs of the broker?")

    def earliest(self, partitions: Iterable[TopicPartition]) -> Bounds:
        return {partition: segments.bounds(self._path, partition)[0] for partition in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> Bounds:
        return {partition: segments.bounds(self._path, partition, self._isolation_level)[1] for partition in partitions}

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {partition: segments.first_offset_at(self._path, partition, at) for partition, at in timestamps.items()}

    def identities(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogIdentity]:
        return {partition: LogIdentity(segments.topic_id(self._path, partition), -1) for partition in partitions}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Bounds:
        """A log directory has no leader: nothing is known to be cut."""
        return dict.fromkeys(epochs, -1)

    def read(self, plan: FetchPlan) -> Iterator[pa.RecordBatch]:
        return segments.scan_range(self._path, plan)

    def close(self) -> None:
        return
