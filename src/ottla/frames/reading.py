"""`ottla.read`: a topic, or a part of a topic, as a table of Arrow, pandas, polars or DuckDB, or as live records.

Nothing is read before a table is asked for. A table is read once and has only committed records. Memory holds the whole
table, and the records of one piece of it as Python objects: `ottla sql` and Spark are for topics that are larger than memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ottla.frames.connecting import Settings, registry_url, wire_settings
from ottla.frames.records import DecodedRecord, Decoding, RecordReader
from ottla.model.extras import require
from ottla.model.user_error import UserError
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.tables.topics import READ_COMMITTED

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ottla.client.settings import ClientSettings

Position: TypeAlias = "int | Mapping[int, int] | datetime | timedelta | Literal['earliest', 'latest'] | None"
"""An offset in every partition, an offset for each partition, a time, a time before now, or an end of the log."""
_FETCH_BYTES = 4 << 20
"""Of one answer; two answers and their decoded records are in memory beside the table."""
_SCHEMAS = {"auto", "raw"}
_PIECE_ROWS = 8192
"""Records that exist as Python objects at a time."""


class TopicData:
    """What `ottla.read` returns."""

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        *,
        start: Position,
        end: Position,
        schema: Any,
        registry: str | None,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._start = start
        self._end = end
        self._schema = schema
        self._registry = registry
        self._table: pa.Table | None = None
        self._offsets: dict[int, int] = {}

    @property
    def offsets(self) -> dict[int, int]:
        """Where the table ends in each partition: the `start` of the next `ottla.read`."""
        if self._table is None:
            self.to_arrow()
        return dict(self._offsets)

    def to_arrow(self) -> pa.Table:
        """A `pyarrow.Table`. Raises UserError without pyarrow, and TableError if the topic cannot be read."""
        if self._table is None:
            require("ottla.read", "pyarrow")
            with self._reader() as reader:
                starts, ends = self._places(reader, self._start, EARLIEST), self._places(reader, self._end, LATEST)
                last = reader.offsets(LATEST)
                ends = {partition: min(end, last[partition]) for partition, end in ends.items()}
                raw = isinstance(self._schema, str) and self._schema == "raw"
                self._table = self._raw(starts, ends) if raw else self._decoded(starts, ends)
                self._offsets = {partition: max(end, starts[partition]) for partition, end in ends.items()}
        return self._table

    def pandas(self) -> pd.DataFrame:
        """A `pandas.DataFrame`."""
        require("ottla.read(...).pandas()", "pandas")
        return self.to_arrow().to_pandas()

    def polars(self) -> pl.DataFrame:
        """A `polars.DataFrame`."""
        require("ottla.read(...).polars()", "polars")
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    def duckdb(self) -> duckdb.DuckDBPyRelation:
        """A relation of DuckDB: `.filter(...)`, `.aggregate(...)`, `.sql(...)`."""
        require("ottla.read(...).duckdb()", "duckdb")
        import duckdb as database

        return database.from_arrow(self.to_arrow())

    def __aiter__(self) -> AsyncIterator[DecodedRecord]:
        """Decoded records from `start` on, as they come. Without `end`, the iteration waits for new records for ever."""
        return self._live()

    async def _live(self) -> AsyncIterator[DecodedRecord]:
        reader = await asyncio.to_thread(self._reader)
        try:
            positions = await asyncio.to_thread(self._places, reader, self._start, EARLIEST)
            ends = None if self._end is None else await asyncio.to_thread(self._places, reader, self._end, LATEST)
            while True:
                if ends is not None:
                    positions = {part: place for part, place in positions.items() if place < ends[part]}
                    if not positions:
                        return
                for record in await asyncio.to_thread(reader.poll, positions):
                    if ends is None or record.offset < ends[record.partition]:
                        yield record
        finally:
            await asyncio.to_thread(reader.close)

    def _reader(self) -> RecordReader:
        return RecordReader(self._settings, self.topic, Decoding(self._registry))

    def _places(self, reader: RecordReader, position: Position, default: int) -> dict[int, int]:
        """The offset of a position in each partition."""
        ends = {"earliest": EARLIEST, "latest": LATEST}
        if position is None or isinstance(position, str):
            if isinstance(position, str) and position not in ends:
                raise UserError(f"{position!r} is not a position: use 'earliest', 'latest', an offset or a datetime")
            return reader.offsets(default if position is None else ends[position])
        if isinstance(position, timedelta):
            position = datetime.now(UTC) - position
        if isinstance(position, datetime):
            return reader.offsets(int(position.astimezone().timestamp() * 1000))
        if isinstance(position, Mapping):
            places = reader.offsets(default)
            absent = sorted(set(position) - set(places))
            if absent:
                raise UserError(f"{self.topic} has no partition {absent[0]}: its partitions are 0 to {len(places) - 1}")
            return {**places, **position}
        return dict.fromkeys(reader.partitions(), int(position))

    def _raw(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> pa.Table:
        """Bytes as they are, decoded in bulk: the columns of Spark's Kafka source."""
        from ottla.tables.decode import concatenated

        return concatenated(self._batches(starts, ends, with_headers=True), with_headers=True)

    def _decoded(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> pa.Table:
        from ottla.frames.columns import Columns

        decoding = Decoding(self._registry)
        columns = Columns(None if isinstance(self._schema, str) else self._schema)
        for batch in self._batches(starts, ends, milliseconds=True):
            for begin in range(0, batch.num_rows, _PIECE_ROWS):
                piece = batch.slice(begin, _PIECE_ROWS)
                places = {name: piece[name] for name in ("partition", "offset", "timestamp")}
                keys, values = (
                    [decoding.decode(data) for data in piece[name].to_pylist()] for name in ("key", "value")
                )
                columns.add(places, keys, values)
        return columns.table()

    def _batches(
        self,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        with_headers: bool = False,
        milliseconds: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Partition after partition. Records that were deleted are left out."""
        from ottla.tables.fetch import FetchPlan, read_range

        for partition in sorted(starts):
            plan = FetchPlan(
                topic=self.topic,
                partition=partition,
                start=starts[partition],
                end=ends[partition],
                isolation_level=READ_COMMITTED,
                with_headers=with_headers,
                milliseconds=milliseconds,
                fail_on_data_loss=False,
                fetch_bytes=_FETCH_BYTES,
            )
            yield from read_range(self._settings, plan)


def read(
    topic: str,
    *,
    start: Position = None,
    end: Position = None,
    schema: Any = "auto",
    bootstrap_servers: str | None = None,
    registry: str | None = None,
    settings: Settings | None = None,
) -> TopicData:
    """The records of `topic` from `start` (default: the first) to `end` (default: the last at the time of the call).

    - `schema`: "auto" decodes values by the registry, else as JSON, else as text. The fields of an object become columns.
      "raw" keeps bytes. A `pyarrow.Schema` fixes the columns and their types.
    - `bootstrap_servers`, `registry`: default to OTTLA_BOOTSTRAP_SERVERS (else localhost:9092) and OTTLA_REGISTRY.
    - `settings`: client settings with the names of Kafka's Java clients or of librdkafka, such as `security.protocol`.
    """
    if isinstance(schema, str) and schema not in _SCHEMAS:
        raise UserError(f"{schema!r} is not a schema: use 'auto', 'raw' or a pyarrow.Schema")
    return TopicData(
        wire_settings(bootstrap_servers, settings),
        topic,
        start=start,
        end=end,
        schema=schema,
        registry=registry_url(registry),
    )
