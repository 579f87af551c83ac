"""SQL outputs without Spark: what attempts stage, what one commit shows, and what kill -9 leaves, on real databases."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.connect.databases import connect_sql
from ottla.connect.sinks.base import DELETED, Work
from ottla.connect.sinks.sql import SqlSink
from ottla.connect.sources.sql import read_table
from ottla.model.user_error import UserError
from ottla.pipelines.outputs.base import TaskAttempt
from ottla.pipelines.outputs.sql import SqlOutput, SqlStaged, make
from tests.interop.ottla_server import ROOT
from tests.support.sql_databases import query

pytestmark = pytest.mark.timeout(300)

LONGEST_S = 120.0
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
WITH_DELETES = SCHEMA.append(pa.field(DELETED, pa.bool_()))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.02)


def output(uri: str, **options) -> SqlOutput:
    made = SqlOutput(uri=uri, table=options.pop("table", "rows"), **options)
    made.prepare(WITH_DELETES if made.keys else SCHEMA)
    return pickle.loads(pickle.dumps(made))  # what tasks and the commit get


def batches(*rows: tuple, schema: pa.Schema = SCHEMA) -> Iterator[pa.RecordBatch]:
    """A batch for each row, so that the order of batches counts."""
    for row in rows:
        yield pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True))], schema=schema)


def attempt(version: int, task: int = 0, number: int = 0, job: str = "job", application: str = "query") -> TaskAttempt:
    return TaskAttempt(application=application, version=version, job=job, task=task, attempt=number)


def work(version: int, application: str = "query") -> Work:
    return Work(application=application, version=version)


def rows_of(uri: str, table: str = "rows") -> list[tuple]:
    return sorted(tuple(row.values()) for row in read_table(uri, table).to_pylist())


def staged_in(uri: str) -> list[str]:
    """Names of everything that attempts staged and nothing removed."""
    if uri.startswith("sqlite"):
        folder = Path(f"{uri.removeprefix('sqlite:///')}.staging")
        return sorted(file.name for file in folder.iterdir()) if folder.exists() else []
    return [row[0] for row in query(uri, "select relname::text from pg_class where relname like 'ottla\\_%' "
            "and relkind = 'r' and relname <> 'ottla_progress' and relnamespace = current_schema()::text::regnamespace")]  # fmt: skip


def test_staged_rows_are_invisible_until_one_commit_shows_all(sql_uri):
    sink = output(sql_uri)
    staged = [sink.stage(batches((n, f"name {n}"), (n + 10, None)), attempt(0, task=n)) for n in range(3)]
    staged.append(sink.stage(iter([]), attempt(0, task=3)))
    assert [rows.rows for rows in staged] == [2, 2, 2, 0]
    assert len(staged_in(sql_uri)) == 3
    with pytest.raises(UserError, match="cannot be read"):
        read_table(sql_uri, "rows")  # the table itself comes with its first rows
    assert sink.reached("query") is None
    assert sink.commit(staged, work(0))
    assert [row[0] for row in rows_of(sql_uri)] == [0, 1, 2, 10, 11, 12]
    assert (sink.reached("query"), staged_in(sql_uri)) == (0, [])


def test_a_replayed_batch_changes_nothing_and_its_rows_are_swept(sql_uri):
    sink = output(sql_uri)
    assert sink.commit([sink.stage(batches((1, "a")), attempt(5))], work(5))
    again = sink.stage(batches((1, "a")), attempt(5, job="second driver"))
    assert not sink.commit([again], work(5))
    assert not sink.commit([], work(4))
    assert rows_of(sql_uri) == [(1, "a")]
    assert len(staged_in(sql_uri)) == 1
    sink.sweep(work(6))
    assert staged_in(sql_uri) == []


def test_a_task_that_runs_again_after_it_staged_counts_once(sql_uri):
    """The losers of speculation and the attempts of a dead driver stay invisible, and the next batch sweeps them."""
    sink = output(sql_uri)
    sink.stage(batches((1, "loser")), attempt(0, number=0))
    sink.stage(batches((1, "dead driver")), attempt(0, number=1, job="earlier"))
    chosen = sink.stage(batches((1, "winner")), attempt(0, number=1))
    later, foreign = attempt(7, number=3), attempt(0, application="other")
    sink.stage(batches((2, "a later batch")), later)
    sink.stage(batches((3, "a different query")), foreign)
    assert sink.commit([chosen], work(0))
    assert rows_of(sql_uri) == [(1, "winner")]
    assert len(staged_in(sql_uri)) == 4
    sink.sweep(work(1))
    left = staged_in(sql_uri)
    assert len(left) == 2, left
    assert any(name.startswith(sink._prefix("other")) for name in left)


def test_the_last_row_of_a_key_counts_and_deletes_apply(sql_uri):
    sink = output(sql_uri, keys=("id",))
    rows = batches((1, "a", False), (2, "b", None), (3, "c", False), schema=WITH_DELETES)
    assert sink.commit([sink.stage(rows, attempt(0))], work(0))
    first = batches(
        (1, "x", False), (1, "A", False), (2, "y", True), (4, "z", False), (4, "z", True), schema=WITH_DELETES
    )
    second = batches((3, "C", True), (3, "again", False), (5, "v", False), schema=WITH_DELETES)
    third = batches((5, None, True), (6, "w", None), schema=WITH_DELETES)
    tasks = [sink.stage(rows, attempt(1, task=task)) for task, rows in enumerate((first, second, third))]
    assert sink.commit(tasks[::-1], work(1)), "the order of tasks counts, not the order of messages"
    assert rows_of(sql_uri) == [(1, "A"), (3, "again"), (6, "w")]


def test_output_mode_complete_replaces_all_rows_in_the_same_transaction(sql_uri):
    sink = output(sql_uri, overwrite=True)
    sink.commit([sink.stage(batches((1, "a"), (2, "b")), attempt(0))], work(0))
    sink.commit([sink.stage(batches((3, "c")), attempt(1))], work(1))
    assert rows_of(sql_uri) == [(3, "c")]
    broken = SqlStaged(application="query", attempt="x", rows=1, task=0, source=str(Path(sql_uri).with_name("gone")))
    with pytest.raises(UserError):
        sink.commit([broken], work(2))
    assert (rows_of(sql_uri), sink.reached("query")) == ([(3, "c")], 1)
    assert sink.commit([], work(2))
    assert rows_of(sql_uri) == []


def test_one_application_writes_two_tables_and_versions_of_before_hold(sql_uri):
    """Delta's rule: versions belong to an application and a table. The sink of before knew the application only."""
    former = SqlSink(sql_uri, "rows")
    assert former.put(pa.table({"id": [1], "name": ["a"]}), work(3))
    former.close()
    first, second = output(sql_uri), output(sql_uri, table="second")
    assert first.reached("query") == 3
    assert not first.commit([first.stage(batches((1, "a")), attempt(3))], work(3))
    for sink in (first, second):
        assert sink.commit([sink.stage(batches((2, "b")), attempt(4))], work(4))
    assert (rows_of(sql_uri), rows_of(sql_uri, "second")) == ([(1, "a"), (2, "b")], [(2, "b")])


def test_types_are_those_of_the_sink(sql_uri):
    rows = pa.table({
        'Big "id': [1, 2], "price": pa.array([Decimal("1234.5678"), None], pa.decimal128(20, 4)), "day": [date(2026, 11, 16), None],
        "at": pa.array([datetime(2026, 11, 16, 10, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "plain": pa.array([datetime(2026, 11, 16, 10), None], pa.timestamp("us")),
        "hour": pa.array([time_of_day(10, 30), None], pa.time64("us")), "deep": [{"a": [1]}, None], "many": [[1, 2], None],
        "raw": [b"\x00\xff", None], "ok": [True, None], "part": pa.array([1.5, None], pa.float32()),
        "small": pa.array([7, None], pa.int16()), "void": pa.nulls(2),
    })  # fmt: skip
    sink = SqlSink(sql_uri, "by_sink")
    sink.put(rows, work(0))
    sink.close()
    made = SqlOutput(uri=sql_uri, table="by_output")
    made.prepare(rows.schema)
    assert made.commit([made.stage(iter(rows.to_batches()), attempt(0))], work(0, "output"))
    by_sink, by_output = read_table(sql_uri, "by_sink"), read_table(sql_uri, "by_output")
    assert by_output.schema == by_sink.schema
    assert by_output.to_pylist() == by_sink.to_pylist()
    assert by_output.column("deep").to_pylist() == ['{"a": [1]}', None]


def test_a_table_in_a_schema_and_names_that_need_quotes(postgresql_uri):
    query(postgresql_uri, 'create schema if not exists "od.d"')
    name = '"od.d"."long ' + "é" * 25 + '"'
    sink = output(postgresql_uri, table=name, keys=("id",))
    long = "a query with a name that is far longer than PostgreSQL's 63 bytes " * 3
    one = sink.stage(batches((1, "a", False), schema=WITH_DELETES), attempt(2**62, 99_999, 2**62, "j" * 40, long))
    two = sink.stage(batches((2, "b", False), schema=WITH_DELETES), attempt(2**62, 99_999, 2**62 + 1, "j" * 40, long))
    assert len(one.source.encode()) <= 63
    assert one.source != two.source
    assert sink.commit([one, two], work(2**62, long))
    assert rows_of(postgresql_uri, name) == [(1, "a"), (2, "b")]
    elsewhere = output(postgresql_uri, table=name, keys=("id",), staging_schema="od.d")
    three = elsewhere.stage(batches((3, "c", False), schema=WITH_DELETES), attempt(0))
    assert query(postgresql_uri, f'select count(*) from "od.d"."{three.source}"') == [(1,)]
    elsewhere.sweep(work(0), "job")
    assert query(postgresql_uri, f"select count(*) from pg_class where relname = '{three.source}'") == [(0,)]


def test_bad_input_is_one_sentence_before_the_first_row(sql_uri):
    query(
        sql_uri, "create table rows (id text, name bigint)" if "postgresql" in sql_uri else "create table rows (id int)"
    )
    words = (
        "rows cannot be written: .*column"
        if "postgresql" in sql_uri
        else "rows does not have the column name: add evolve"
    )
    with pytest.raises(UserError, match=words) as problem:
        output(sql_uri)
    assert "\n" not in str(problem.value)
    query(sql_uri, "create table keyless (id bigint, name text)")
    with pytest.raises(UserError, match=r"keyless cannot be written: .*ON CONFLICT"):
        output(sql_uri, table="keyless", keys=("id",))
    with pytest.raises(UserError, match="the key 'nowhere' of rows is not a column; there are id, name"):
        output(sql_uri, keys=("nowhere",))
    with pytest.raises(UserError, match="the option dbtable is missing"):
        make({"url": sql_uri}, overwrite=False)
    with pytest.raises(UserError, match=r"sqlite:///FILE or postgresql://USER@HOST/NAME, not 'host/x'"):
        make({"url": "oracle://me:secret@host/x", "dbtable": "rows"}, overwrite=False).prepare(SCHEMA)
    with pytest.raises(UserError, match="in memory"):
        make({"url": "sqlite:///:memory:", "dbtable": "rows"}, overwrite=False)


def test_wrong_logins_and_rights(postgresql_uri):
    query(postgresql_uri, "create table rows (id bigint, name text)")
    query(postgresql_uri, "create role reader login")
    query(postgresql_uri, f"grant usage on schema {postgresql_uri.rpartition('%3D')[2]} to reader")
    reader = postgresql_uri.replace("ottla@", "reader:secret@")
    with pytest.raises(UserError, match="rows cannot be written: permission denied for schema"):
        output(reader)
    with pytest.raises(UserError, match=r'cannot be opened: .*role "nobody" does not exist') as problem:
        output(postgresql_uri.replace("ottla@", "nobody:secret@"))
    assert "secret" not in str(problem.value) + repr(SqlOutput(uri=reader, table="rows"))
    with pytest.raises(UserError, match=r'cannot be opened: .*database "nowhere" does not exist'):
        output(postgresql_uri.replace("/postgres", "/nowhere"))


def test_an_error_of_the_rows_is_that_error(sql_uri):
    """Drivers report errors of the batches as their own, with Python's traceback in one line."""

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches((1, "a"))
        raise ZeroDivisionError("in the user's function")

    sink = output(sql_uri)
    with pytest.raises(ZeroDivisionError, match="in the user's function"):
        sink.stage(broken(), attempt(0))
    sink.stage(batches((1, "a")), attempt(0, task=1))
    sink.stage(batches((1, "a")), attempt(0, job="a paused driver"))
    sink.sweep(work(0))
    assert len(staged_in(sql_uri)) >= 2, "a driver may still commit a version that is not committed"
    sink.sweep(work(0), "job")
    assert len(staged_in(sql_uri)) == 1, "a write that failed removes what its own attempts staged"


def test_executors_stage_at_once(sql_uri):
    sink = output(sql_uri)
    with ThreadPoolExecutor(8) as pool:
        staged = list(pool.map(lambda task: sink.stage(batches((task, "x")), attempt(0, task=task)), range(16)))
    assert sink.commit(staged, work(0))
    assert [row[0] for row in rows_of(sql_uri)] == list(range(16))


def test_a_table_with_different_types_gets_the_rows_as_its_types(postgresql_uri):
    query(postgresql_uri, "create table rows (id int primary key, name varchar(5))")
    sink = output(postgresql_uri, keys=("id",))
    assert sink.commit([sink.stage(batches((1, "a", False), schema=WITH_DELETES), attempt(0))], work(0))
    long = sink.stage(batches((2, "longer than five", False), schema=WITH_DELETES), attempt(1))
    with pytest.raises(UserError, match=r"rows was not written: value too long for type character varying\(5\)"):
        sink.commit([long], work(1))
    assert (rows_of(postgresql_uri), sink.reached("query")) == ([(1, "a")], 0)


def test_two_drivers_commit_one_batch_at_once(sql_uri):
    """One of two drivers holds its transaction open when the second commits the same batch from rows of its own."""
    sinks = [output(sql_uri), output(sql_uri)]
    staged = [sink.stage(batches((1, "a"), (2, "b")), attempt(0, job=f"driver {n}")) for n, sink in enumerate(sinks)]
    merged, release = threading.Event(), threading.Event()

    class Held(SqlOutput):
        def _merge_source(self, cursor, dialect, rows) -> None:
            super()._merge_source(cursor, dialect, rows)
            merged.set()
            assert release.wait(LONGEST_S)

    first = Held(uri=sql_uri, table="rows", schema=SCHEMA)
    with ThreadPoolExecutor(2) as pool:
        commits = [pool.submit(first.commit, [staged[0]], work(0))]
        try:
            until(lambda: merged.is_set() or commits[0].done())
            commits.append(pool.submit(sinks[1].commit, [staged[1]], work(0)))
            waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            until(lambda: commits[1].done() or sql_uri.startswith("sqlite") or query(sql_uri, waiting)[0][0] > 0)
        finally:
            release.set()
    assert [commit.result() for commit in commits] == [True, False]
    assert rows_of(sql_uri) == [(1, "a"), (2, "b")]


DRIVER = """
import pickle, sys
sink, staged, work, answer = pickle.loads(bytes.fromhex(sys.stdin.readline()))
if answer == "before":
    print("staged", flush=True)
    sys.stdin.readline()
print(sink.commit(staged, work), flush=True)
"""


def driver(sink: SqlOutput, staged: list[SqlStaged], at: Work, stop: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
    )  # fmt: skip
    assert child.stdin is not None
    child.stdin.write(pickle.dumps((sink, staged, at, stop)).hex() + "\n")
    child.stdin.flush()
    return child


def killed(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    assert child.wait(LONGEST_S) == -signal.SIGKILL
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        pipe.close()


def test_kill_9_between_stage_and_commit_and_in_the_middle_of_a_commit(postgresql_uri):
    """A lock of the test stops the commit after it took the version and before its rows; kill -9 then ends the driver."""
    sink = output(postgresql_uri)
    assert sink.commit([], work(0))
    staged = [sink.stage(batches((1, "a"), (2, "b")), attempt(1, job="first"))]
    child = driver(sink, staged, work(1), "before")
    assert child.stdout is not None
    assert child.stdout.readline() == "staged\n"
    killed(child)
    assert (rows_of(postgresql_uri), sink.reached("query")) == ([], 0)

    connection, _ = connect_sql(postgresql_uri)
    cursor = connection.cursor()
    cursor.execute("lock table rows in share mode")
    child = driver(sink, staged, work(1), "middle")
    blocked = "select pid from pg_locks where not granted and relation = 'rows'::regclass"
    until(lambda: query(postgresql_uri, blocked) != [])
    process = query(postgresql_uri, blocked)[0][0]
    killed(child)
    connection.rollback()  # the server process gets the lock, writes the rows, and then finds that its client is gone
    cursor.close()
    connection.close()
    until(lambda: query(postgresql_uri, f"select 1 from pg_stat_activity where pid = {process}") == [])
    assert (rows_of(postgresql_uri), sink.reached("query")) == ([], 0)

    again = output(postgresql_uri)
    again.sweep(work(1))
    assert again.commit([again.stage(batches((1, "a"), (2, "b")), attempt(1, job="second"))], work(1))
    again.sweep(work(2))
    assert staged_in(postgresql_uri) == []
    assert (rows_of(postgresql_uri), sink.reached("query")) == ([(1, "a"), (2, "b")], 1)


def test_a_database_that_crashed_lost_the_unlogged_rows_and_the_commit_says_so(postgresql_uri):
    """PostgreSQL empties unlogged tables in recovery; without the count, the batch would be marked as written and be gone."""
    sink = output(postgresql_uri)
    staged = [sink.stage(batches((1, "a")), attempt(0))]
    query(postgresql_uri, f'truncate "{staged[0].source}"')  # what recovery does
    assert query(postgresql_uri, f"select relpersistence::text from pg_class where relname = '{staged[0].source}'") == [
        ("u",)
    ]
    with pytest.raises(UserError, match="lost the rows that were staged"):
        sink.commit(staged, work(0))
    assert sink.reached("query") is None


def test_many_staging_tables(postgresql_uri, monkeypatch):
    """More tables than one transaction drops: the commit drops some, and the sweep drops the rest."""
    monkeypatch.setattr("ottla.pipelines.outputs.sql.MOST_DROPPED", 2)
    sink = output(postgresql_uri)
    staged = [sink.stage(batches((task, "a")), attempt(0, task=task)) for task in range(7)]
    assert sink.commit(staged, work(0))
    assert len(rows_of(postgresql_uri)) == 7
    assert len(staged_in(postgresql_uri)) == 5
    sink.sweep(work(1))
    assert staged_in(postgresql_uri) == []
