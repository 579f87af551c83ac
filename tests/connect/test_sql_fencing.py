"""Two writers of one piece of work overlap on one database: one of them writes, the other reports that it was done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest

from ottla.connect.sinks.base import DELETED, Work
from ottla.connect.sinks.sql import SqlSink
from ottla.connect.sources.sql import read_table
from ottla.model.user_error import UserError
from tests.support.sql_databases import query

pytestmark = pytest.mark.timeout(300)

ROWS = pa.table({"id": list(range(100)), "name": [f"name {n}" for n in range(100)]})
LONGEST_S = 120.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.02)


def hold_before_commit(sink: SqlSink) -> tuple[threading.Event, threading.Event]:
    """The sink stops after its rows are written and before their commit: `wrote` is set then, `release` ends the stop."""
    wrote, release, change = threading.Event(), threading.Event(), sink._change

    def held(cursor, rows) -> None:
        change(cursor, rows)
        wrote.set()
        assert release.wait(LONGEST_S)

    sink._change = held
    return wrote, release


def waits_for_a_lock(uri: str) -> bool:
    if uri.startswith("sqlite"):
        return True  # SQLite shows no waiters: the test then runs without the proof that the second writer is there
    return query(uri, "select count(*) from pg_stat_activity where wait_event_type = 'Lock'")[0][0] > 0


def overlapping(uri: str, first: SqlSink, second: SqlSink, works: list[Work]) -> list[Future[bool]]:
    """Both puts; the second begins while the first has written its rows and holds its transaction open."""
    wrote, release = hold_before_commit(first)
    arrived = threading.Event()

    def late() -> bool:
        arrived.set()
        return second.put(ROWS, works[1])

    with ThreadPoolExecutor(2) as pool:
        puts = [pool.submit(first.put, ROWS, works[0])]
        try:
            until(lambda: wrote.is_set() or puts[0].done())
            puts.append(pool.submit(late))
            assert arrived.wait(LONGEST_S)
            until(lambda: puts[1].done() or waits_for_a_lock(uri))
        finally:
            release.set()
    return puts


@pytest.fixture
def uri(sql_uri) -> str:
    return sql_uri


@pytest.fixture
def sinks(uri) -> Iterator[Callable[[], SqlSink]]:
    opened: list[SqlSink] = []

    def new(**options) -> SqlSink:
        opened.append(SqlSink(uri, "rows", **options))
        return opened[-1]

    yield new
    for sink in opened:
        sink.close()


@pytest.mark.parametrize("new", [True, False], ids=["no-table-yet", "tables-are-there"])
def test_one_of_two_overlapping_writers_of_a_batch_writes(uri, sinks, new):
    """Before the version was taken first, both writers succeeded on PostgreSQL and every row was there twice."""
    first, second = sinks(), sinks()
    if not new:
        assert first.put(ROWS.slice(0, 0), Work(application="query", version=0))
    puts = overlapping(uri, first, second, [Work(application="query", version=1)] * 2)
    assert [put.result() for put in puts] == [True, False]
    assert sorted(read_table(uri, "rows").column("id").to_pylist()) == list(range(100))
    assert second.reached("query") == 1


def test_a_writer_that_fails_leaves_the_batch_to_the_one_that_waits(uri, sinks):
    first, second = sinks(), sinks()
    first.put(ROWS.slice(0, 0), Work(application="query", version=0))
    change = first._change

    def broken(cursor, rows) -> None:
        change(cursor, rows)
        raise RuntimeError("the writer dies before its commit")

    first._change = broken
    puts = overlapping(uri, first, second, [Work(application="query", version=1)] * 2)
    assert isinstance(puts[0].exception(), RuntimeError)
    assert puts[1].result()
    assert read_table(uri, "rows").num_rows == 100


def test_two_applications_create_the_tables_at_once(uri, sinks):
    """Creation of a table that a second transaction creates at the same time is an error on PostgreSQL without a lock."""
    works = [Work(application="one", version=0), Work(application="two", version=0)]
    puts = overlapping(uri, sinks(), sinks(), works)
    assert [put.result() for put in puts] == [True, True]
    assert read_table(uri, "rows").num_rows == 200


def test_an_older_version_is_refused_and_changes_nothing(uri, sinks):
    sink = sinks(insert_mode="upsert", pk_fields=["id"])
    assert sink.put(ROWS, Work(application="query", version=7))
    assert not sink.put(pa.table({"id": [500], "name": ["late"]}), Work(application="query", version=6))
    assert sink.reached("query") == 7
    assert read_table(uri, "rows").num_rows == 100


def test_insert_mode_with_a_key_creates_the_key_and_deletes(uri, sinks):
    """As before the rows were copied in bulk: the last row of a key counts, and a stored key is an error."""
    sink = sinks(insert_mode="insert", pk_fields=["id"])
    assert sink.put(pa.table({"id": [1, 1, 2], "name": ["a", "A", "b"]}), Work(application="query", version=0))
    gone = pa.table({"id": [2, 3], "name": [None, "c"], DELETED: [True, False]})
    assert sink.put(gone, Work(application="query", version=1))
    with pytest.raises(UserError, match=r"rows was not written: .*(duplicate key|UNIQUE constraint)"):
        sink.put(pa.table({"id": [3], "name": ["again"]}), Work(application="query", version=2))
    assert sink.put(pa.table({"id": [4], "name": ["d"], DELETED: pa.nulls(1)}), Work(application="query", version=2)), (
        "a column of nulls deletes nothing"
    )
    assert sorted(read_table(uri, "rows").column("name").to_pylist()) == ["A", "c", "d"]
    assert sink.reached("query") == 2


def test_many_writers_at_once(uri, sinks):
    """Whatever the order is, one of the writers of each version writes, and no writer fails."""
    writers = [sinks() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for version in range(5):
            work = Work(application="query", version=version)
            done = list(pool.map(partial(lambda work, sink: sink.put(ROWS, work), work), writers))
            assert sorted(done) == [False, False, False, True]
    assert read_table(uri, "rows").num_rows == 500
