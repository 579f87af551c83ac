"""Tables that Spark's tasks write: every output mode, repeated batches, and no row on the driver."""

from __future__ import annotations

import json

import pyarrow.dataset
import pytest
from pyiceberg.catalog.sql import SqlCatalog

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
    send(topics, name, range(30))
    PipelineRun(spark, pipeline, settings).once()
    for step in ("everything", "counts", "last"):
        forget_the_last_batch(tmp_path / "c" / "tables" / step)
    send(topics, name, range(30, 60))
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


def test_the_formats_in_any_program(spark, topics, tmp_path):
    """Plain writes, and a stream that appends and is repeated."""
    rows = spark.range(100).selectExpr("id as n", "concat('w', id % 2) as word").repartition(2)
    catalog = {"catalog.uri": f"sqlite:///{tmp_path}/c.db", "catalog.warehouse": f"{tmp_path}/lake"}
    lake = rows.write.format("ottla-iceberg").options(table="shop.rows", **catalog)
    for _ in range(2):
        lake.option("txnAppId", "job").option("txnVersion", "0").mode("append").save()
        rows.write.format("ottla-files").option("path", f"{tmp_path}/files").option("partitionBy", "word").mode(
            "overwrite"
        ).save()
    table = SqlCatalog("ottla", uri=catalog["catalog.uri"]).load_table("shop.rows")
    assert sorted(table.scan().to_arrow().column("n").to_pylist()) == list(range(100))
    found = pyarrow.dataset.dataset(f"{tmp_path}/files", partitioning="hive").to_table()
    assert sorted(found.column("n").to_pylist()) == list(range(100))
    with pytest.raises(Exception, match="txnAppId and txnVersion go together"):
        rows.write.format("ottla-delta").option("path", "x").option("txnAppId", "a").mode("append").save()
    name = topics.new("rows", 2)
    send(topics, name, range(20))

    def stream():
        source = topics.options(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="15")
        values = spark.readStream.format("ottla").options(**source).load().selectExpr("cast(value as string) as v")
        writing = values.writeStream.format("ottla-delta").option("path", f"{tmp_path}/stream")
        query = writing.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start()
        query.awaitTermination(120)

    stream()
    forget_the_last_batch(tmp_path / "c")
    stream()
    values = read_delta(f"{tmp_path}/stream")[0].column("v").to_pylist()
    assert sorted(json.loads(value)["n"] for value in values) == list(range(20))
