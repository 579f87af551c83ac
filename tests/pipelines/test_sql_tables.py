"""SQL tables that Spark's tasks write and read: every output mode, repeated batches, ranges, and errors of one sentence."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.connect.sources.sql import read_table
from ottla.pipelines.build import RunSettings, input_frame
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import sql_table, topic
from ottla.pipelines.run import PipelineRun, StepFailed, plain_reason
from tests.pipelines.conftest import Topics
from tests.pipelines.test_table_sinks import forget_the_last_batch, no_rows_on_the_driver, send
from tests.support.sql_databases import query

pytestmark = pytest.mark.timeout(600)

__all__ = ["no_rows_on_the_driver"]


@pytest.fixture
def topics(ottla_server):
    return Topics(ottla_server)


def rows_of(uri, table):
    return sorted(tuple(row.values()) for row in read_table(uri, table).to_pylist())


def write(frame, uri, table, version, mode="append", **options):
    (
        frame.write.format("ottla-sql")
        .options(url=uri, dbtable=table, **options)
        .option("txnAppId", "a program")
        .option("txnVersion", str(version))
        .mode(mode)
        .save()
    )


def test_a_batch_of_many_tasks_its_replay_upserts_and_replacement(spark, sql_uri):
    numbers = spark.range(0, 1000, numPartitions=4).select("id", F.col("id").cast("string").alias("name"))
    for _ in range(2):
        write(numbers, sql_uri, "rows", 0)
    assert rows_of(sql_uri, "rows") == [(n, str(n)) for n in range(1000)]
    write(numbers, sql_uri, "rows", 1)
    assert len(rows_of(sql_uri, "rows")) == 2000
    write(numbers.where("id < 3"), sql_uri, "rows", 2, mode="overwrite")
    assert rows_of(sql_uri, "rows") == [(n, str(n)) for n in range(3)]

    twice = spark.range(0, 40, numPartitions=4).select((F.col("id") % 10).alias("id"), F.col("id").alias("latest"))
    write(twice.withColumn("_deleted", F.lit(None).cast("boolean")), sql_uri, "newest", 0, keys="id")
    assert rows_of(sql_uri, "newest") == [(n, n + 30) for n in range(10)], (
        "the last row of a key, in the order of tasks"
    )
    gone = twice.where("id < 5").limit(5).withColumn("_deleted", F.lit(True))
    write(gone, sql_uri, "newest", 1, keys='["id"]')
    assert rows_of(sql_uri, "newest") == [(n, n + 30) for n in range(5, 10)]


def test_each_output_mode_of_a_pipeline_and_its_replay(spark, topics, tmp_path, postgresql_uri):
    uri = postgresql_uri
    name = topics.new("rows", 2)
    numbers = topic(name, value="json", schema="n long, word string")
    pipeline = Pipeline("tables")

    @pipeline.step(reads={"rows": numbers}, writes=sql_table(uri, "everything"))
    def everything(rows):
        return rows.select("n", "word", F.struct("n").alias("deep"), "_offset")

    @pipeline.step(reads={"rows": numbers}, writes=sql_table(uri, "counts"), output_mode="complete")
    def counts(rows):
        return rows.groupBy("word").count()

    @pipeline.step(reads={"rows": numbers}, writes=sql_table(uri, "sums", keys=["word"]), output_mode="update")
    def sums(rows):
        return rows.groupBy("word").agg(F.sum("n").alias("total"))

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "c"))
    send(topics, name, range(30))
    PipelineRun(spark, pipeline, settings).once()
    for step in ("everything", "counts", "sums"):
        forget_the_last_batch(tmp_path / "c" / "tables" / step)
    send(topics, name, range(30, 60))
    PipelineRun(spark, pipeline, settings).once()  # the first batch again, then a second one
    assert rows_of(uri, "everything") == [(n, f"w{n % 3}", json.dumps({"n": n})) for n in range(60)]
    assert rows_of(uri, "counts") == [("w0", 20), ("w1", 20), ("w2", 20)]
    assert rows_of(uri, "sums") == [(f"w{w}", sum(range(w, 60, 3))) for w in range(3)]


def test_a_step_that_cannot_write_its_table_gives_one_sentence(spark, topics, tmp_path, postgresql_uri):
    name = topics.new("rows", 1)
    send(topics, name, range(3))
    numbers = topic(name, value="json", schema="n long, word string")
    query(postgresql_uri, "create table narrow (n bigint)")

    def failure(uri, table, checkpoints):
        pipeline = Pipeline("refused")
        pipeline.step(reads={"rows": numbers}, writes=sql_table(uri, table))(lambda rows: rows.select("n", "word"))
        settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / checkpoints))
        with pytest.raises(StepFailed) as failed:
            PipelineRun(spark, pipeline, settings).once()
        return failed.value.reason

    reason = failure(postgresql_uri, "narrow", "schema")
    assert reason == (
        "the table narrow does not have the column word: add evolve=True to the output to add new columns, or leave them out "
        "in the step"
    )
    reason = failure(postgresql_uri.replace("ottla@", "nobody:secret@"), "rows", "login")
    assert 'role "nobody" does not exist' in reason
    assert "secret" not in reason
    reason = failure("oracle://me:secret@host/x", "rows", "driver")
    assert reason == "a database's URL is sqlite:///FILE or postgresql://USER@HOST/NAME, not 'host/x'"
    assert query(postgresql_uri, "select count(*) from narrow") == [(0,)]


@pytest.mark.usefixtures("rows_may_come")
def test_executors_read_ranges_of_the_key_with_the_types_of_the_table(spark, postgresql_uri):
    query(
        postgresql_uri,
        "create table orders (id int primary key, price numeric(10,2), rate numeric, code uuid, note jsonb, took interval, "
        "at timestamptz, tags text[], other bigint)",
    )
    query(
        postgresql_uri,
        "insert into orders select n, n + 0.25, n + 0.5, md5(n::text)::uuid, jsonb_build_object('n', n), n * interval '1 s', "
        "'2026-01-01'::timestamptz, array[n::text, null], nullif(n % 50, 0) from generate_series(1, 1000) n",
    )
    frame = spark.read.format("ottla-sql").options(url=postgresql_uri, dbtable="orders", numPartitions="4").load()
    kinds = {name: kind for name, kind in frame.dtypes if name not in {"id", "other"}}
    assert kinds == {
        "price": "decimal(10,2)", "rate": "string", "code": "string", "note": "string", "took": "string", "at": "timestamp",
        "tags": "array<string>",
    }  # fmt: skip
    assert frame.rdd.getNumPartitions() == 4
    total = frame.agg(F.count("*"), F.sum("id"), F.sum("price"), F.countDistinct("code")).collect()[0]
    assert tuple(total) == (1000, 500500, Decimal("500750.00"), 1000)
    first = frame.where("id = 7").collect()[0]
    assert (first["rate"], first["note"], first["took"], first["tags"]) == ("7.5", '{"n": 7}', "00:00:07", ["7", None])

    by_column = frame.sparkSession.read.format("ottla-sql").options(url=postgresql_uri, dbtable="orders")
    assert by_column.option("partitionColumn", "other").load().count() == 1000, "rows without a value, too"
    with pytest.raises(PySparkException) as problem:
        by_column.option("partitionColumn", "at").load().count()
    assert plain_reason(problem.value) == (
        "partitionColumn at of orders is not an integer column: name a different column"
    )
    with pytest.raises(PySparkException) as problem:
        spark.read.format("ottla-sql").options(url=postgresql_uri, dbtable="nowhere").load()
    assert plain_reason(problem.value) == 'the table nowhere cannot be read: relation "nowhere" does not exist'


@pytest.fixture
def rows_may_come(monkeypatch):
    """This test collects results of its own."""
    monkeypatch.undo()


def test_an_input_is_read_at_the_start_or_in_every_batch(spark, topics, tmp_path, sql_uri):
    name = topics.new("rows", 1)
    send(topics, name, range(4))
    query(sql_uri, "create table words (word varchar(10) primary key, meaning bigint)")
    query(sql_uri, "insert into words values ('w0', 0), ('w1', 0), ('w2', 0)")
    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "c"), max_offsets_per_trigger=2)
    rows = input_frame(spark, topic(name, value="json", schema="n long, word string"), settings)
    seen = {}
    for refresh in ("start", "batch"):
        words = input_frame(spark, sql_table(sql_uri, "words", refresh=refresh), settings)

        def write_batch(frame, batch, refresh=refresh):
            write(frame, sql_uri, f"joined_{refresh}", batch)
            query(sql_uri, f"update words set meaning = {batch + 1}")

        joined = rows.join(words, "word").select("n", "meaning")
        query(sql_uri, "update words set meaning = 0")
        started = (
            joined.writeStream.foreachBatch(write_batch)
            .option("checkpointLocation", str(tmp_path / refresh))
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination(300)
        seen[refresh] = rows_of(sql_uri, f"joined_{refresh}")
    assert seen == {"start": [(0, 0), (1, 0), (2, 0), (3, 0)], "batch": [(0, 0), (1, 0), (2, 1), (3, 1)]}
