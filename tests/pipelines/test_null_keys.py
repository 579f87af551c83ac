"""Upserts of rows whose key is null: Delta tables treat null as a key, and other tables refuse such a row by name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ottla.connect.sinks.base import Work
from ottla.connect.sinks.delta import DeltaSink, read_delta
from ottla.connect.sinks.sql import SqlSink
from ottla.connect.sources.sql import read_table
from ottla.model.user_error import UserError
from tests.pipelines import attempts
from tests.pipelines.attempts import SCHEMA

pytestmark = pytest.mark.timeout(300)
STORED = [{"n": 1, "word": "a"}]
BATCHES = {
    "alone": [{"n": None, "word": "x"}],
    "beside others": [{"n": 2, "word": "b"}, {"n": None, "word": "x"}],
}
REFUSED = r"has no value in its key \(n\): leave such rows out, or give them one with coalesce"


@pytest.fixture(autouse=True)
def task_context(monkeypatch):
    monkeypatch.setattr("pyspark.TaskContext.get", attempts.Attempt)


def delta_rows(path):
    return read_delta(path)[0].to_pylist()


def rows(values):
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA)


@pytest.fixture(params=["iceberg", "sqlite", pytest.param("postgresql", marks=pytest.mark.interop)])
def table(request, tmp_path):
    """Kind and options of an output, and the function that reads its rows."""
    if request.param == "iceberg":
        catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path / "lake")}
        options = {"table": "shop.rows", **{f"catalog.{name}": value for name, value in catalog.items()}}
        stored = SqlCatalog("ottla", uri=catalog["uri"], warehouse=f"file://{tmp_path}/lake")
        return "iceberg", options, lambda: stored.load_table("shop.rows").scan().to_arrow().to_pylist()
    sqlite = f"sqlite:///{tmp_path}/rows.db"
    uri = sqlite if request.param == "sqlite" else request.getfixturevalue("postgresql_uri")
    return "sql", {"url": uri, "dbtable": "rows"}, lambda: read_table(uri, "rows").to_pylist()


@pytest.mark.parametrize("batch", BATCHES)
def test_an_upsert_of_a_null_key_is_refused_and_shows_nothing(table, batch):
    kind, options, read = table
    attempts.run(kind, 0, [rows(STORED)], keys="n", **options)
    for version in (1, 2):
        with pytest.raises(UserError, match=REFUSED):
            attempts.run(kind, version, [rows(BATCHES[batch])], keys="n", **options)
    assert read() == STORED
    attempts.run(kind, 3, [rows([{"n": 1, "word": "c"}])], keys="n", **options)
    assert read() == [{"n": 1, "word": "c"}]


def test_null_is_one_key_of_a_delta_table(tmp_path):
    path = str(tmp_path / "t")
    for version, word in enumerate("xyz"):
        attempts.run("delta", version, [rows([{"n": None, "word": word}, {"n": 1, "word": word}])], keys="n", path=path)
    attempts.run("delta", 3, [rows([{"n": 2, "word": "w"}])], keys="n", path=path)
    assert sorted(delta_rows(path), key=str) == [{"n": 1, "word": "z"}, {"n": 2, "word": "w"}, {"n": None, "word": "z"}]


def test_null_may_be_a_part_of_a_key(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), keys=["n", "word"])
    twice = [
        {"n": None, "word": "a", "count": 1},
        {"n": 1, "word": None, "count": 1},
        {"n": 1, "word": "a", "count": 1},
    ]
    for version in range(2):
        values = [{**row, "count": version} for row in twice]
        sink.put(pa.Table.from_pylist(values), Work(application="c", version=version))
    assert sorted(delta_rows(str(tmp_path / "t")), key=str) == sorted(values, key=str)


def test_the_sql_sink_of_connectors_refuses_null_keys(sql_uri):
    sink = SqlSink(sql_uri, "rows", insert_mode="upsert", pk_fields=["n"])
    sink.put(pa.Table.from_batches([rows(STORED)]), Work(application="c", version=0))
    with pytest.raises(UserError, match=REFUSED):
        sink.put(pa.Table.from_batches([rows(BATCHES["alone"])]), Work(application="c", version=1))
    sink.close()
    assert read_table(sql_uri, "rows").to_pylist() == STORED


def test_rows_without_keys_may_have_nulls(tmp_path):
    attempts.run("delta", 0, [rows(BATCHES["beside others"])], path=str(tmp_path / "t"))
    assert len(read_delta(str(tmp_path / "t"))[0]) == 2
