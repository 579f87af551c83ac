"""A topic as an Arrow table, and SQL over topics by DuckDB: no JVM.

In a query a topic is a table of its name; quote a name with a dot or a dash. The table has the columns of Spark's Kafka
source, with these differences. `key` and `value` are text if they are UTF-8; the bytes are in `key_bytes` and
`value_bytes`. `json` is the value if it is JSON: `select json->>'page' as page, count(*) from hits group by all`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ottla.model.ids import TopicPartition
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.tables.decode import concatenated
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.topics import READ_COMMITTED, TableError, TopicMetadata, settings_from

TextOf = Callable[[bytes], str | None]
"""The text of a value that names its schema; None for all other bytes."""
_CREATE = (
    "create table {} as select coalesce(key_text, try(decode(key))) as key, "
    "coalesce(value_text, try(decode(value))) as value, "
    "try_cast(coalesce(value_text, try(decode(value))) as json) as json, "
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
    max_bytes: int | None = None,
) -> tuple[pa.Table, dict[TopicPartition, int]]:
    """The table, and for each partition the offset where it ends. Raises TableError above `max_bytes`."""
    settings = settings_from(client)
    with TopicMetadata(settings) as metadata:
        partitions = sorted(metadata.partitions([topic]))
        first = metadata.offsets(dict.fromkeys(partitions, EARLIEST))
        last = metadata.offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
    batches: list[pa.RecordBatch] = []
    ends: dict[TopicPartition, int] = {}
    size = 0
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
        for batch in read_range(settings, plan):
            size += batch.nbytes
            if max_bytes is not None and size > max_bytes:
                raise TableError(
                    f"the query reads more than it may: {topic} has more than {max_bytes >> 20} MiB; use ottla sql"
                )
            batches.append(batch)
    return concatenated(batches, with_headers=with_headers), ends


def run_sql(
    client: Mapping[str, str],
    query: str,
    *,
    max_records: int | None = None,
    more: Mapping[str, Any] | None = None,
    text_of: TextOf | None = None,
) -> tuple[pa.Table, dict[TopicPartition, int]]:
    """The answer as a table, and the end offsets of the topics that the query names. `more` has further tables by
    name. For the queries of people who may not read this machine's files, `ottla.tables.caged_query` is the way.
    `text_of` decodes keys and values by their schemas.
    """
    import duckdb

    database: Any = duckdb.connect(":memory:")
    offsets: dict[TopicPartition, int] = {}
    try:
        names = [name for name in named_tables(database, query) if name not in (more or {})]
        for name, rows in (more or {}).items():
            database.register(name, rows)
        for name, rows, ends in topics_of(client, names, max_records=max_records):
            offsets |= ends
            add_topic(database, name, rows, text_of)
        return database.sql(query).to_arrow_table(), offsets
    except duckdb.Error as problem:
        raise TableError(f"the query was not answered: {str(problem).splitlines()[0]}") from problem
    finally:
        database.close()


def topics_of(
    client: Mapping[str, str],
    names: Iterable[str],
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
    visible: Callable[[str], bool] = lambda _topic: True,
) -> Iterator[tuple[str, pa.Table, dict[TopicPartition, int]]]:
    """Each topic with its rows and their ends. Raises TableError for a topic that is missing or not visible, and when the
    topics have more than `max_bytes`.
    """
    topics, left = list(names), max_bytes
    if not topics:
        return
    with TopicMetadata(settings_from(client)) as metadata:
        visible_names = {topic for topic in metadata.topics_like(".*") if visible(topic)}
    for name in topics:
        if name not in visible_names:
            close = sorted(topic for topic in visible_names if topic.startswith(name[:3]))[:5]
            hint = f"; there are {', '.join(close)}" if close else ""
            raise TableError(f"there is no topic {name!r}{hint}")
        rows, ends = topic_at(client, name, with_headers=True, max_records=max_records, max_bytes=left)
        left = None if left is None else left - rows.nbytes
        yield name, rows, ends


def add_topic(database: Any, name: str, rows: pa.Table, text_of: TextOf | None = None) -> None:
    for column in ("key", "value"):
        rows = rows.append_column(f"{column}_text", _texts(rows[column], text_of))
    database.register("__rows", rows)
    quoted = '"' + name.replace('"', '""') + '"'
    database.execute(_CREATE.format(quoted))
    database.unregister("__rows")


def _texts(column: pa.ChunkedArray, text_of: TextOf | None) -> pa.Array:
    if text_of is None:
        return pa.nulls(len(column), pa.string())
    values = (data.as_py() for data in column)
    return pa.array([None if data is None else text_of(data) for data in values], pa.string())


def named_tables(database: Any, query: str) -> list[str]:
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
