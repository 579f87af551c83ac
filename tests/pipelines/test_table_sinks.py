"""Tables that Spark's tasks write: every output mode, repeated batches, and no row on the driver."""

from __future__ import annotations

import json

import pytest

from ottla.connect.sinks.delta import read_delta
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import delta, topic, view
from ottla.pipelines.run import PipelineRun
from tests.pipelines.conftest import Topics

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def topics(ottla_server):
    return Topics(ottla_server)


@pytest.fixture(autouse=True)
def no_rows_on_the_driver(monkeypatch):
    """Rows of a batch come to the driver by these only."""
    from pyspark.sql.classic.dataframe import DataFrame

    def refused(*_, **__):
        raise AssertionError("rows come to the driver")

    for name in ("toArrow", "toPandas", "collect", "toLocalIterator", "take", "head"):
        monkeypatch.setattr(DataFrame, name, refused)


def send(topics, name, numbers):
    topics.send(name, [(None, json.dumps({"n": n, "word": f"w{n % 3}"}).encode()) for n in numbers])


def forget_the_last_batch(checkpoint):
    """As if the driver had died between the commit of the table and its own."""
    last = max(int(one.name) for one in (checkpoint / "commits").glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()


def test_each_output_mode_into_delta_and_its_replay(spark, topics, tmp_path):
    name = topics.new("rows", 2)
    numbers = topic(name, value="json", schema="n long, word string")
    pipeline = Pipeline("tables")

    @pipeline.step(reads={"rows": numbers}, writes=delta(str(tmp_path / "all"), partition_by=["word"]))
    def everything(rows):
        return rows.select("n", "word", "_offset")

    @pipeline.step(reads={"rows": numbers}, writes=delta(str(tmp_path / "counts")), output_mode="complete")
    def counts(rows):
        return rows.groupBy("word").count()

    @pipeline.step(reads={"rows": numbers}, writes=view(f"{name}-last", str(tmp_path / "last"), keys=["word"]))
    def last(rows):
        return rows.select("word", "n")

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "c"))
    for numbers_sent in (range(30), range(30, 60)):
        send(topics, name, numbers_sent)
        PipelineRun(spark, pipeline, settings).once()
    for step in ("everything", "counts", "last"):
        forget_the_last_batch(tmp_path / "c" / "tables" / step)
    PipelineRun(spark, pipeline, settings).once()
    table, note = read_delta(str(tmp_path / "all"))
    assert sorted((row["n"], row["word"]) for row in table.to_pylist()) == [(n, f"w{n % 3}") for n in range(60)]
    assert table.column_names == ["n", "word"]
    assert sum(json.loads(note["ottla.offsets"])[name].values()) == 60
    table, _ = read_delta(str(tmp_path / "counts"))
    assert sorted((row["word"], row["count"]) for row in table.to_pylist()) == [("w0", 20), ("w1", 20), ("w2", 20)]
    table, _ = read_delta(str(tmp_path / "last"))
    assert {row["word"] for row in table.to_pylist()} == {"w0", "w1", "w2"}
    assert len(table) == 3
