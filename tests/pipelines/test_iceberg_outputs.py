"""Iceberg outputs without Spark, on a SQL catalog: staged files, the marker as a property of the table, losers, upserts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ottla.connect.sinks.base import Work
from ottla.connect.sinks.iceberg import IcebergSink
from ottla.model.user_error import UserError
from tests.pipelines import attempts
from tests.pipelines.attempts import SCHEMA, Attempt, batch, stage

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def task_context(monkeypatch):
    monkeypatch.setattr("pyspark.TaskContext.get", Attempt)


class Lake:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = f"sqlite:///{folder}/catalog.db"
        self.options = {"table": "shop.rows", "catalog.uri": self.uri, "catalog.warehouse": str(folder / "lake")}

    def writer(self, version, schema=SCHEMA, **options):
        return attempts.writer("iceberg", version, schema, **self.options, **options)

    def run(self, version, *tasks, **options):
        attempts.run("iceberg", version, *tasks, **self.options, **options)

    def table(self):
        return SqlCatalog("ottla", uri=self.uri, warehouse=f"file://{self.folder}/lake").load_table("shop.rows")

    def numbers(self):
        return sorted(self.table().scan().to_arrow().column("n").to_pylist())

    def files(self):
        return len([one for one in self.folder.rglob("*.parquet") if "/data/" in str(one)])

    def sink(self):
        return IcebergSink(self.uri, str(self.folder / "lake"), "shop.rows")


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def test_rows_marker_and_losers(lake):
    made = lake.writer(0, partitionby="word")
    loser, winner, empty = stage(made, batch(1, 2)), stage(made, batch(1, 2)), stage(made, task=1)
    assert lake.numbers() == [], "staged rows are invisible"
    made.commit([winner, empty])
    made.commit([winner, empty])
    lake.run(0, [batch(1, 2)])
    assert lake.numbers() == [1, 2]
    assert loser.rows == 2
    dead = lake.writer(1)
    stage(dead, batch(3))
    lake.run(1, [batch(3)], [batch(4)])
    lake.run(2)
    assert lake.numbers() == [1, 2, 3, 4]
    assert lake.files() == 4, "losers and dead drivers leave nothing"
    table = lake.table()
    assert table.properties["ottla.version.app/1"] == "2"
    assert table.current_snapshot().summary["ottla.offsets"] == "1"
    assert [field.name for field in table.spec().fields] == ["word"]
    failed = lake.writer(3)
    failed.abort([stage(failed, batch(9)), None])
    assert lake.files() == 4


def test_two_drivers_that_commit_one_version(lake, monkeypatch):
    lake.run(0, [batch(1)])
    one = lake.writer(1)
    of_one = stage(one, batch(2))
    two = lake.writer(1)  # the first is paused, and thought dead
    of_two = stage(two, batch(2))
    commit = SqlCatalog.commit_table
    between = []

    def slower(self, *args, **more):
        if not between:
            between.append("the other commits first")
            one.commit([of_one])
        return commit(self, *args, **more)

    monkeypatch.setattr(SqlCatalog, "commit_table", slower)
    two.commit([of_two])
    assert lake.numbers() == [1, 2]


def test_two_connectors_that_commit_one_version(lake, monkeypatch):
    """One was paused, and thought dead. pyiceberg's own retry would append its rows beside those of the other."""
    one, two = lake.sink(), lake.sink()
    one.put(pa.Table.from_batches([batch(1)]), Work(application="app/1", version=0))
    commit, between, answers = SqlCatalog.commit_table, [], []

    def slower(self, *args, **more):
        if not between:
            between.append("the other commits first")
            answers.append(one.put(pa.Table.from_batches([batch(2)]), Work(application="app/1", version=1)))
        return commit(self, *args, **more)

    monkeypatch.setattr(SqlCatalog, "commit_table", slower)
    answers.append(two.put(pa.Table.from_batches([batch(2)]), Work(application="app/1", version=1)))
    assert lake.numbers() == [1, 2]
    assert answers == [True, False]
    assert two.put(pa.Table.from_batches([batch(3)]), Work(application="app/1", version=2))
    assert lake.numbers() == [1, 2, 3]


def test_markers_of_an_earlier_version_count(lake):
    lake.sink().put(pa.Table.from_batches([batch(1)]), Work(application="app/1", version=7))
    lake.run(7, [batch(1)])
    assert lake.numbers() == [1]
    lake.run(8, [batch(2)])
    assert lake.numbers() == [1, 2]
    assert "ottla.version.app/1" in lake.table().properties


def test_complete_mode_and_new_columns(lake):
    lake.run(0, [batch(1, 2)], overwrite=True)
    lake.run(1, [batch(7)], overwrite=True)
    assert lake.numbers() == [7]
    more = pa.schema([*SCHEMA, ("more", pa.float64())])
    lake.run(2, [pa.RecordBatch.from_pylist([{"n": 8, "word": "x", "more": 1.5}], more)], schema=more)
    assert sorted(lake.table().scan().to_arrow().column("more").to_pylist(), key=str) == [1.5, None]
    wrong = pa.schema([("n", pa.string())])
    with pytest.raises(UserError, match=r"the Iceberg table shop.rows was not written: .*n"):
        lake.writer(3, wrong)
    with pytest.raises(UserError, match=r"NAMESPACE\.NAME"):
        attempts.output("iceberg", table="rows")


def test_an_upsert_in_one_task(lake):
    schema = pa.schema([*SCHEMA, ("_deleted", pa.bool_())])

    def changes(*pairs):
        rows = [{"n": n, "word": word, "_deleted": word is None} for n, word in pairs]
        return pa.RecordBatch.from_pylist(rows, schema)

    lake.run(0, [changes((1, "a"), (2, "b"))], schema=schema, keys="n")
    made = lake.writer(1, schema, keys="n")
    made.commit([stage(made, changes((1, "c"), (2, None), (3, "d"))) for _ in range(2)][:1])
    lake.run(1, [changes((1, "z"), (2, "z"), (3, "z"))], schema=schema, keys="n")
    rows = lake.table().scan().to_arrow().to_pylist()
    assert sorted((row["n"], row["word"]) for row in rows) == [(1, "c"), (3, "d")]
    with pytest.raises(UserError, match=r"come in several tasks: call coalesce\(1\)"):
        lake.run(2, [], [changes((1, "z"))], schema=schema, keys="n")
    with pytest.raises(UserError, match=r"was merged into shop\.rows with 0 rows and has 1 now"):
        lake.run(2, [changes((1, "z"))], schema=schema, keys="n")
    with pytest.raises(UserError, match="more than 10 bytes in one batch"):
        lake.run(3, [changes((1, "z"), (2, "x"))], schema=schema, keys="n", upsertmaxbytes="10")
