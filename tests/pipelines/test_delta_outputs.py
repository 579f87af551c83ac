"""Delta outputs without Spark: what attempts stage, what a commit makes visible, and what a sweep removes."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from ottla.connect.sinks.base import Work
from ottla.connect.sinks.delta import DeltaSink, read_delta
from ottla.model.user_error import UserError
from tests.pipelines import attempts
from tests.pipelines.attempts import SCHEMA, batch


@pytest.fixture(autouse=True)
def task_context(monkeypatch):
    monkeypatch.setattr("pyspark.TaskContext.get", attempts.Attempt)


def writer(path, version, schema=SCHEMA, **options):
    return attempts.writer("delta", version, schema, path=str(path), **options)


def run(path, version, *tasks, **options):
    attempts.run("delta", version, *tasks, path=str(path), **options)


def numbers(path):
    return sorted(read_delta(str(path))[0].column("n").to_pylist())


def staged(path):
    return sorted(one.name for one in path.glob("batches/*/*/*"))


def test_rows_are_seen_with_the_commit_and_a_version_once(tmp_path):
    path = tmp_path / "t"
    first = writer(path, 0)
    messages = [first.write(iter([batch(1, 2), batch(3)])), first.write(iter([]))]
    assert not (path / "_delta_log").exists(), "staged rows are invisible"
    first.commit(messages)
    assert numbers(path) == [1, 2, 3]
    run(path, 0, [batch(1, 2, 3)])
    run(path, 1, [batch(4)], [batch(5)])
    first.commit(messages)
    assert numbers(path) == [1, 2, 3, 4, 5]
    assert read_delta(str(path))[1]["ottla.offsets"] == "1"
    assert attempts.output("delta", path=str(path)).reached("app/1") == 1
    run(path, 2)
    assert numbers(path) == [1, 2, 3, 4, 5]
    assert attempts.output("delta", path=str(path)).reached("app/1") == 2


def test_losers_and_dead_drivers_leave_nothing(tmp_path):
    path = tmp_path / "t"
    run(path, 0, [batch(1)])
    dead = writer(path, 1)
    dead.write(iter([batch(2)]))  # its driver dies here
    assert len(staged(path)) == 2
    made = writer(path, 1)
    assert len(staged(path)) == 2, "a driver that is thought dead may still commit"
    winner, loser = made.write(iter([batch(2)])), made.write(iter([batch(2)]))
    made.commit([winner])
    assert numbers(path) == [1, 2]
    late = made.write(iter([batch(2)]))  # a loser that ends after the commit
    assert {late.files[0].path.rpartition("/")[2], loser.files[0].path.rpartition("/")[2]} < set(staged(path))
    run(path, 2, [batch(3)])
    assert numbers(path) == [1, 2, 3]
    assert len(staged(path)) == 3
    failed = writer(path, 3)
    failed.abort([failed.write(iter([batch(4)])), None])
    assert len(staged(path)) == 3
    run(path, 4, [batch(5)], overwrite=True)
    run(path, 5, [batch(6)])
    assert len(staged(path)) == 5, "files that the log named once stay for earlier versions of the table"


def test_a_commit_without_an_answer_may_land_after_the_abort(tmp_path):
    """All tasks have staged, the answer to the commit is lost, Spark aborts, and then the store applies the commit."""
    path = tmp_path / "t"
    run(path, 0, [batch(1)])
    made = writer(path, 1)
    message = made.write(iter([batch(2)]))
    made.abort([message])
    made.commit([message])
    assert numbers(path) == [1, 2]


def test_a_repeated_batch_reads_its_rows(tmp_path):
    """A query with state stores its state as the rows are read, and Spark refuses a batch that stored no state."""
    path = tmp_path / "t"
    run(path, 0, [batch(1)])
    rows = iter([batch(1), batch(2)])
    writer(path, 0).write(rows)
    assert next(rows, None) is None


def test_a_task_that_fails_removes_its_files(tmp_path):
    def dies():
        yield batch(1)
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError):
        writer(tmp_path / "t", 0).write(dies())
    assert staged(tmp_path / "t") == []


def test_two_drivers_that_commit_one_version(tmp_path):
    path = tmp_path / "t"
    run(path, 0, [batch(1)])
    one = writer(path, 1)
    of_one = one.write(iter([batch(2)]))
    two = writer(path, 1)  # the first is paused, and thought dead
    of_two = two.write(iter([batch(2)]))
    one.commit([of_one])
    two.commit([of_two])
    assert numbers(path) == [1, 2]
    run(path, 2, [batch(3)])
    assert len(staged(path)) == 3, "the files of the second are swept"


def test_complete_mode_replaces_the_rows_and_the_columns(tmp_path):
    path = tmp_path / "t"
    run(path, 0, [batch(1, 2)], [batch(3)], overwrite=True)
    run(path, 1, [batch(7)], overwrite=True)
    run(path, 1, [batch(8)], overwrite=True)
    assert numbers(path) == [7]
    other = pa.schema([("n", pa.string())])
    run(path, 2, [pa.RecordBatch.from_pydict({"n": ["text"]}, other)], schema=other, overwrite=True)
    assert read_delta(str(path))[0].to_pylist() == [{"n": "text"}]


def test_columns_keep_their_kind_and_new_ones_come(tmp_path):
    path = tmp_path / "t"
    DeltaSink(str(path)).put(pa.table({"n": pa.array([1], pa.int32())}), Work(application="before", version=0))
    with pytest.raises(UserError, match=r"does not have the column word: add evolve=True to the output"):
        run(path, 0, [batch(2)])
    run(path, 0, [batch(2)], evolve="true")
    assert sorted(map(str, read_delta(str(path))[0].to_pylist())) == [
        "{'n': 1, 'word': None}", "{'n': 2, 'word': 'w0'}",
    ]  # fmt: skip
    with pytest.raises(UserError, match="a row does not fit the table"):
        run(path, 1, [batch(2**40)])
    wrong = pa.schema([("n", pa.list_(pa.int64()))])
    with pytest.raises(UserError, match=r"its column n is int32, the rows have list<item: int64>; cast it"):
        writer(path, 1, wrong)
    with pytest.raises(UserError, match="needs the column 'day', which the rows lack"):
        writer(tmp_path / "other", 0, partitionby="day")
    void = pa.schema([("n", pa.int64()), ("word", pa.null()), ("nothing", pa.null())])
    run(path, 1, [pa.RecordBatch.from_pydict({"n": [3], "word": [None], "nothing": [None]}, void)], schema=void)
    assert numbers(path) == [1, 2, 3]
    assert read_delta(str(path))[0].column_names == ["n", "word"]


def test_an_upsert_is_one_task_within_a_bound(tmp_path):
    path = tmp_path / "t"
    schema = pa.schema([*SCHEMA, ("_deleted", pa.bool_())])

    def changes(*pairs):
        return pa.RecordBatch.from_pylist(
            [{"n": n, "word": word, "_deleted": word is None} for n, word in pairs], schema
        )

    run(path, 0, [changes((1, "a"), (2, "b"))], schema=schema, keys="n")
    made = writer(path, 1, schema, keys="n")
    messages = [made.write(iter([changes((1, "c"), (2, None), (3, "d"))])) for _ in range(2)]  # an attempt is repeated
    made.commit(messages[1:])
    run(path, 1, [changes((1, "z"), (2, "z"), (3, "z"))], schema=schema, keys="n")
    assert sorted((row["n"], row["word"]) for row in read_delta(str(path))[0].to_pylist()) == [(1, "c"), (3, "d")]
    run(path, 2, [], schema=schema, keys="n")
    assert attempts.output("delta", path=str(path)).reached("app/1") == 2, "an empty batch has a marker, too"
    with pytest.raises(UserError, match="more than 100 bytes in one batch: read less"):
        run(path, 3, [changes(*[(n, "x") for n in range(100)])], schema=schema, keys="n", upsertmaxbytes="100")
    assert attempts.output("delta", path=str(path)).reached("app/1") == 2
    with pytest.raises(UserError, match=r"come in several tasks: call coalesce\(1\)"):
        run(path, 3, [changes((1, "y"))], [changes((1, "z"))], schema=schema, keys="n")
    with pytest.raises(UserError, match="with 1 rows and has 2 now: give a new txnVersion"):
        run(path, 3, [changes((1, "y"), (1, "z"))], schema=schema, keys="n")


def test_partitions_statistics_and_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr("ottla.pipelines.outputs.data_files.FLUSH_BYTES", 200)
    monkeypatch.setattr("ottla.pipelines.outputs.data_files.OPEN_FILES", 2)
    path = tmp_path / "t"
    at = dt.datetime(2026, 11, 18, 20, 0, 0, 1500, tzinfo=dt.UTC)
    schema = pa.schema(
        [("n", pa.int64()), ("place", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))]
    )
    rows = [
        {
            "n": n,
            "place": [None, "a/b", "ü c", "..", ""][n % 5],
            "day": at.date(),
            "at": at + dt.timedelta(microseconds=n),
        }
        for n in range(40)
    ]
    batches = [pa.RecordBatch.from_pylist(rows[n : n + 10], schema) for n in range(0, 40, 10)]
    run(path, 0, batches[:2], batches[2:], schema=schema, partitionby='["place", "day"]')
    found = read_delta(str(path))[0].to_pylist()
    assert sorted(row["n"] for row in found) == list(range(40))
    assert {row["place"] for row in found} == {None, "a/b", "ü c", ".."}, "Delta has no empty partition value"
    assert {row["day"] for row in found} == {at.date()}
    for number in range(40):  # statistics leave out files, and never a row
        when = at + dt.timedelta(microseconds=number)
        where = (pc.field("n") == number) & (pc.field("at") == when)
        assert DeltaTable(str(path)).to_pyarrow_table(filters=where).column("n").to_pylist() == [number]


def test_notes_are_those_of_the_rows_under_a_writer(tmp_path, monkeypatch):
    """A writer commits between the opening of the table and the look into its history."""
    path = tmp_path / "t"
    run(path, 0, [batch(1)])
    history = DeltaTable.history

    def later(table, limit=None):
        monkeypatch.setattr(DeltaTable, "history", history)
        run(path, 1, [batch(2)])
        return history(table, limit)

    monkeypatch.setattr(DeltaTable, "history", later)
    rows, notes = read_delta(str(path))
    assert (sorted(rows.column("n").to_pylist()), notes["ottla.offsets"]) == ([1, 2], "1")


def test_notes_behind_many_commits_of_others(tmp_path):
    path = tmp_path / "t"
    run(path, 0, [batch(1)])
    for _ in range(21):
        write_deltalake(str(path), pa.table({"n": [2], "word": ["w0"]}), mode="append")
    assert read_delta(str(path))[1]["ottla.offsets"] == "0"
