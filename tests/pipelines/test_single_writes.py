"""Writes without txnAppId: rows once, no marker for each write, and attempts that lost go with the commit."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from ottla.connect.sources.sql import read_table
from ottla.model.user_error import UserError
from ottla.pipelines.outputs.files import committed_files
from ottla.pipelines.outputs.writer import TableWriter
from tests.pipelines import attempts
from tests.pipelines.attempts import SCHEMA, batch, stage
from tests.support.sql_databases import query

pytestmark = pytest.mark.timeout(300)
WRITES = 3


@pytest.fixture(autouse=True)
def task_context(monkeypatch):
    monkeypatch.setattr("pyspark.TaskContext.get", attempts.Attempt)


def write(kind, rows, schema=SCHEMA, **options):
    """One write, in which Spark does not choose one of two attempts at a task."""
    made = pickle.loads(pickle.dumps(TableWriter(attempts.output(kind, **options), schema, None)))
    message = stage(made, rows)
    if not options.get("keys"):
        stage(made, rows)
    pickle.loads(pickle.dumps(made)).commit([message])


@pytest.mark.parametrize("keys", ["", "n"])
def test_delta(tmp_path, keys):
    path = tmp_path / "t"
    for number in range(WRITES):
        write("delta", batch(number), path=str(path), keys=keys)
    table = DeltaTable(str(path))
    assert sorted(table.to_pyarrow_table().column("n").to_pylist()) == [0, 1, 2]
    logs = [line for log in (path / "_delta_log").glob("*.json") for line in log.read_text().splitlines()]
    assert not [line for line in logs if "txn" in json.loads(line)]
    assert len(list((path / "_delta_log").glob("*.json"))) == WRITES
    assert len([one for one in path.rglob("*.parquet") if "_delta_log" not in str(one)]) == WRITES


@pytest.mark.parametrize("keys", ["", "n"])
def test_iceberg(tmp_path, keys):
    uri = f"sqlite:///{tmp_path}/catalog.db"
    options = {"table": "shop.rows", "catalog.uri": uri, "catalog.warehouse": str(tmp_path / "lake"), "keys": keys}
    for number in range(WRITES):
        write("iceberg", batch(number), **options)
    table = SqlCatalog("ottla", uri=uri, warehouse=f"file://{tmp_path}/lake").load_table("shop.rows")
    assert sorted(table.scan().to_arrow().column("n").to_pylist()) == [0, 1, 2]
    assert not [name for name in table.properties if name.startswith("ottla.")]
    assert len([one for one in tmp_path.rglob("*.parquet") if "/data/" in str(one)]) == WRITES


def test_sql(sql_uri, tmp_path):
    for number in range(WRITES):
        write("sql", batch(number), url=sql_uri, dbtable="rows")
    assert sorted(read_table(sql_uri, "rows").column("n").to_pylist()) == [0, 1, 2]
    assert query(sql_uri, "select application from ottla_progress") == []
    assert not list(tmp_path.rglob("*.arrow"))


def test_files(tmp_path):
    path = tmp_path / "t"
    for number in range(WRITES):
        write("files", batch(number), path=str(path))
    assert len(committed_files(str(path))) == WRITES
    hidden = sorted(str(one.relative_to(path)) for one in Path(path, "_ottla").rglob("*") if one.is_file())
    assert hidden == ["_ottla/single-writes.json"]
    with pytest.raises(UserError, match="the column n of the files"):
        write("files", batch("1", schema=TEXT), schema=TEXT, path=str(path))


TEXT = pa.schema([("n", pa.string()), ("word", pa.string())])


def test_a_write_that_fails_leaves_nothing(tmp_path):
    made = TableWriter(attempts.output("delta", path=str(tmp_path / "t")), SCHEMA, None)
    made.abort([stage(made, batch(1)), None])
    assert not list((tmp_path / "t").rglob("*.parquet"))
