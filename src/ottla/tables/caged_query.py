"""SQL of people who may not use this machine: DuckDB runs in a process that may die, without files, network or secrets.

The process has limits of time and memory, and ends with its query. The parent reads and masks the topics, and the process
gets rows only. Its answer is cut to what a page shows: text, with limits of rows, cells and bytes.
A thread is no cage: `select repeat('x', 2000000000)` takes 4 GB beside DuckDB's own limit of memory, and nothing
interrupts the function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ottla.model.ids import TopicPartition
from ottla.system.question_process import ProcessEnded, QuestionProcess, answer_questions
from ottla.tables.query import add_topic, named_tables, topics_of
from ottla.tables.topics import TableError

MAX_MEMORY = 1536 << 20
"""Of the process, with the libraries that it maps."""
_DUCKDB: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "256MB",
    "threads": "1",
    "enable_external_access": "false",
}
_TOO_LARGE = "the query needs too much memory; ask for less"
_START_S = 60.0
_GRACE_S = 5.0
"""DuckDB interrupts a query itself, with an error in words; after this time the process is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    seconds: float = 30.0
    records: int = 200_000
    """Of each partition: the newest."""
    input_bytes: int = 256 << 20
    rows: int = 1_000
    cells: int = 100_000
    cell_characters: int = 1_000
    output_characters: int = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CagedResult:
    columns: list[str]
    rows: list[list[str | None]]
    more: bool
    """Whether the query has more rows than these."""
    offsets: dict[TopicPartition, int]
    """The end offsets of the topics that the query names."""


def run_caged(
    client: Mapping[str, str],
    query: str,
    *,
    limits: QueryLimits,
    visible: Callable[[str], bool],
    shown_rows: Callable[[str, pa.Table], pa.Table],
) -> CagedResult:
    """Raises TableError in words for the person. `visible` decides whether the person may see a topic, and `shown_rows`
    masks its rows.
    """
    with closing(QuestionProcess(__name__)) as process:
        names = _ask(process, ("names", query), _START_S)
        tables: dict[str, pa.Table] = {}
        offsets: dict[TopicPartition, int] = {}
        topics = topics_of(client, names, max_records=limits.records, max_bytes=limits.input_bytes, visible=visible)
        for name, rows, ends in topics:
            tables[name] = shown_rows(name, rows)
            offsets |= ends
        answer = _ask(process, ("rows", query, tables, limits), limits.seconds + _GRACE_S)
    return CagedResult(columns=answer["columns"], rows=answer["rows"], more=answer["more"], offsets=offsets)


def _ask(process: QuestionProcess, question: tuple[Any, ...], timeout_s: float) -> Any:
    try:
        answer = process.ask(question, timeout_s)
    except TimeoutError:
        raise TableError("the query took too long; ask for less") from None
    except ProcessEnded:
        raise TableError(_TOO_LARGE) from None
    if "problem" in answer:
        raise TableError(answer["problem"])
    return answer["result"]


def _answer(question: tuple[Any, ...]) -> dict[str, Any]:
    """In the process."""
    import duckdb

    try:
        with closing(duckdb.connect(":memory:", config=_DUCKDB)) as database:
            if question[0] == "names":
                return {"result": named_tables(database, question[1])}
            return {"result": _rows(database, *question[1:])}
    except TableError as problem:
        return {"problem": str(problem)}
    except duckdb.InterruptException:
        return {"problem": "the query took too long; ask for less"}
    except (duckdb.OutOfMemoryException, MemoryError):
        return {"problem": _TOO_LARGE}
    except duckdb.Error as problem:
        return {"problem": f"the query was not answered: {str(problem).splitlines()[0]}"}
    except RecursionError:
        return {"problem": "the query is nested too deep"}
    except (OverflowError, ValueError) as error:
        return {"problem": f"the answer has a value that cannot be shown ({error}); cast it to text"}


def _rows(database: Any, query: str, tables: Mapping[str, pa.Table], limits: QueryLimits) -> dict[str, Any]:
    alarm = threading.Timer(limits.seconds, database.interrupt)
    alarm.daemon = True
    alarm.start()
    try:
        for name, rows in tables.items():
            add_topic(database, name, rows)
        reader = database.sql(query).to_arrow_reader(min(limits.rows + 1, 1024))
        columns = [str(name) for name in reader.schema.names]
        room = min(limits.rows, max(1, limits.cells // max(1, len(columns))))
        shown: list[list[str | None]] = []
        characters, more = limits.output_characters, False
        for batch in reader:
            for row in zip(*(column.slice(0, room + 1).to_pylist() for column in batch.columns), strict=True):
                more = len(shown) >= room or characters < 0
                if more:
                    break
                cells = [None if value is None else str(value)[: limits.cell_characters] for value in row]
                characters -= sum(len(cell) for cell in cells if cell is not None)
                shown.append(cells)
            if more:
                break
        return {"columns": columns, "rows": shown, "more": more}
    finally:
        alarm.cancel()


if __name__ == "__main__":
    answer_questions(_answer, MAX_MEMORY)
