"""A query over topics: each topic that it names becomes an Arrow table of its newest records, then DuckDB answers.

Values that are JSON objects (or decoded by the registry) also become the JSON column `data`, so that
`select data->>'$.user' from clicks` works. The database has no access to files or the network, and a query has limits:
records read, rows shown, memory, time.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.console.errors import ConsoleError
from ottla.console.messages.browse import Place, browse
from ottla.console.messages.decode import Decoder
from ottla.console.registry_client import Registry
from ottla.console.settings import MAX_SQL_ROWS

MAX_RECORDS = 200_000
"""Of each topic: the newest."""
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool
    read: dict[str, int]


def run_query(client: Mapping[str, str], registry: Registry, topics: list[str], query: str) -> Answer:
    import duckdb

    if not query.strip():
        raise ConsoleError("Write a query, such as: select * from my_topic limit 10")
    named = [name for name in topics if _names(query, name)]
    database = duckdb.connect(config={"memory_limit": "256MB", "threads": "1", "enable_external_access": "false"})
    try:
        read = {}
        for name in named:
            table = _table(client, registry, name)
            database.register(name, table)
            read[name] = table.num_rows
        return _ask(database, query, read)
    finally:
        database.close()


def _ask(database: Any, query: str, read: dict[str, int]) -> Answer:
    import duckdb

    alarm = threading.Timer(_SECONDS, database.interrupt)
    alarm.start()
    try:
        found = database.execute(query)
        columns = [column[0] for column in found.description or []]
        rows = found.fetchmany(MAX_SQL_ROWS + 1)
    except duckdb.InterruptException as error:
        raise ConsoleError(f"the query took more than {_SECONDS:.0f} s; ask for less") from error
    except duckdb.Error as error:
        raise ConsoleError(str(error)) from error
    finally:
        alarm.cancel()
    return Answer(columns, rows[:MAX_SQL_ROWS], len(rows) > MAX_SQL_ROWS, read)


def _names(query: str, topic: str) -> bool:
    """Whether the query may name this topic, bare or in double quotes; a false guess only reads too much."""
    return re.search(rf"(?<![\w.-]){re.escape(topic)}(?![\w-])", query) is not None


def _table(client: Mapping[str, str], registry: Registry, topic: str) -> Any:
    import pyarrow as pa

    page = browse(client, topic, Place(), MAX_RECORDS)
    decoder = Decoder(registry)
    values = [decoder.decode(record.value) for record in page.records]
    keys = [decoder.decode(record.key) for record in page.records]
    return pa.table({
        "partition": pa.array([r.partition for r in page.records], pa.int32()),
        "offset": pa.array([r.offset for r in page.records], pa.int64()),
        "timestamp": pa.array([r.timestamp_ms if r.timestamp_ms >= 0 else None for r in page.records], pa.timestamp("ms")),
        "key": pa.array([None if k.kind == "null" else k.text for k in keys], pa.string()),
        "value": pa.array([None if v.kind == "null" else v.text for v in values], pa.string()),
        "data": pa.array([json.dumps(v.tree, default=str) if v.tree is not None else None for v in values], pa.string()),
    })  # fmt: skip
