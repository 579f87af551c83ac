"""A topic as an Arrow table, and SQL over topics by DuckDB: no JVM.

In a query a topic is a table of its name; quote a name with a dot or a dash. The table has the columns of Spark's Kafka
source, with these differences. `key` and `value` are text if they are UTF-8; the bytes are in `key_bytes` and
`value_bytes`. `json` is the value if it is JSON: `select json->>'page' as page, count(*) from hits group by all`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.model.ids import TopicPartition
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.tables.decode import concatenated
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.topics import READ_COMMITTED, TableError, TopicMetadata, settings_from

_CREATE = (
    "create table {} as select try(decode(key)) as key, try(decode(value)) as value, "
    "try_cast(try(decode(value)) as json) as json, "
    'topic, partition, "offset", timestamp, timestampType, headers, key as key_bytes, value as value_bytes from __rows'
)


def topic_table(
    client: Mapping[str, str],
    topic: str,
    *,
    with_headers: bool = False,
    start: Mapping[TopicPartition, int] | None = None,
    max_records: int | None = None,
) -> pa.Table:
    """All committed records of a topic, partition after partition; with `max_records`, the newest of each partition."""
    return topic_at(client, topic, with_headers=with_headers, start=start, max_records=max_records)[0]


def topic_at(
    client: Mapping[str, str],
    topic: str,
    *,
    with_headers: bool = False,
    start: Mapping[TopicPartition, int] | None = None,
    max_records: int | None = None,
) -> tuple[pa.Table, dict[TopicPartition, int]]:
    """The table, and for each partition the offset where it ends."""
    settings = settings_from(client)
    with TopicMetadata(settings) as metadata:
        partitions = sorted(metadata.partitions([topic]))
        first = metadata.offsets(dict.fromkeys(partitions, EARLIEST))
        last = metadata.offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
    batches: list[pa.RecordBatch] = []
    ends: dict[TopicPartition, int] = {}
    for partition in partitions:
        end = last[partition] or 0
        begin = max(first[partition] or 0, (start or {}).get(partition, 0))
        if max_records is not None:
            begin = max(begin, end - max_records)
        ends[partition] = end
        plan = FetchPlan(
            topic=topic,
            partition=partition.partition,
            start=begin,
            end=end,
            isolation_level=READ_COMMITTED,
            with_headers=with_headers,
        )
        batches += read_range(settings, plan)
    return concatenated(batches, with_headers=with_headers), ends


class Cage(NamedTuple):
    """Limits of a query: no files and no network, bounded memory and time."""

    memory: str = "256MB"
    seconds: float = 30.0

    @property
    def config(self) -> dict[str, Any]:
        return {"memory_limit": self.memory, "threads": "1", "enable_external_access": "false"}

    @contextlib.contextmanager
    def alarm(self, database: Any) -> Iterator[None]:
        timer = threading.Timer(self.seconds, database.interrupt)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def run_sql(
    client: Mapping[str, str],
    query: str,
    *,
    max_records: int | None = None,
    caged: Cage | None = None,
    more: Mapping[str, Any] | None = None,
    visible: Callable[[str], bool] | None = None,
    shown_rows: Callable[[str, pa.Table], pa.Table] | None = None,
) -> tuple[pa.Table, dict[TopicPartition, int]]:
    """The answer as a table, and the end offsets of the topics that the query names. `more` has further tables by
    name. `caged` limits queries of untrusted users. `visible` decides whether the user may see a topic, and
    `shown_rows` masks its rows.
    """
    import duckdb

    database: Any = duckdb.connect(":memory:", config=caged.config if caged is not None else {})
    offsets: dict[TopicPartition, int] = {}
    try:
        names = [name for name in _tables(database, query) if name not in (more or {})]
        for name, rows in (more or {}).items():
            database.register(name, rows)
        there = set[str]()
        if names:
            with TopicMetadata(settings_from(client)) as metadata:
                there = {topic for topic in metadata.topics_like(".*") if visible is None or visible(topic)}
        for name in names:
            if name not in there:
                close = sorted(topic for topic in there if topic.startswith(name[:3]))[:5]
                hint = f"; there are {', '.join(close)}" if close else ""
                raise TableError(f"there is no topic {name!r}{hint}")
            rows, ends = topic_at(client, name, with_headers=True, max_records=max_records)
            offsets |= ends
            if shown_rows is not None:
                rows = shown_rows(name, rows)
            database.register("__rows", rows)
            quoted = '"' + name.replace('"', '""') + '"'
            database.execute(_CREATE.format(quoted))
            database.unregister("__rows")
        with caged.alarm(database) if caged is not None else contextlib.nullcontext():
            return database.sql(query).to_arrow_table(), offsets
    except duckdb.InterruptException as problem:
        raise TableError("the query took too long; ask for less") from problem
    except duckdb.Error as problem:
        raise TableError(f"the query was not answered: {str(problem).splitlines()[0]}") from problem
    finally:
        database.close()


def _tables(database: Any, query: str) -> list[str]:
    """The tables that a query names, from DuckDB's own parser; those it defines itself (`with`) are left out."""
    tree = json.loads(database.execute("select json_serialize_sql(?)", [query]).fetchall()[0][0])
    if tree.get("error"):
        raise TableError(f"the query is not understood: {tree.get('error_message')}")
    named: set[str] = set()
    defined: set[str] = set()
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                named.add(str(node["table_name"]))
            if "cte_map" in node:
                defined |= {str(entry["key"]) for entry in node["cte_map"].get("map", [])}
            stack += node.values()
    return sorted(named - defined)
