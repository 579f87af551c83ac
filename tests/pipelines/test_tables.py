"""Joins with tables in real queries: beside the model of Kafka Streams, and a batch that runs twice gives one result."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.model.user_error import UserError
from ottla.pipelines import Pipeline, build, changes_of, join, join_tables, table_of, topic
from ottla.pipelines.build import RunSettings
from ottla.pipelines.run import PipelineRun, StepFailed
from tests.pipelines import table_model
from tests.pipelines.table_model import Record
from tests.pipelines.test_recorded import forget_last_commits

pytestmark = pytest.mark.timeout(600)
START_MS = 1_790_000_000_000
CLICK, USER, ORDER = "user string, page string", "name string, country string", "user string, item string"


def clicks_with_users(names, how="left"):
    """A pipeline of one step: clicks with the table's row of their time."""
    pipeline = Pipeline("clicks")

    @pipeline.step(
        reads={
            "clicks": topic(names["clicks"], value="json", schema=CLICK),
            "users": changes_of(topic(names["users"], value="json", schema=USER, dead_letter=names["bad"])),
        },
        writes=topic(names["seen"], value="json", key="user"),
    )
    def seen(clicks, users):
        return join(clicks, users, on="user", how=how).select("user", "page", "country")

    return pipeline


def send(topics, name, rows):
    """Rows of (time, key, value)."""
    topics.send(
        name,
        [
            (key and key.encode(), json.dumps(value) if isinstance(value, dict) else value, START_MS + at)
            for at, key, value in rows
        ],
    )


def user(name, country):
    return {"name": name, "country": country}


def click(at, who, page):
    return at, None, {"user": who, "page": page}


def seen(committed, name):
    return sorted((row["page"], row.get("country")) for row in map(json.loads, (r["value"] for r in committed(name))))


@pytest.fixture
def names(topics):
    return {stem: topics.new(stem, 2, retention_ms="-1") for stem in ("clicks", "seen", "bad", "users")}


@pytest.fixture
def settings(topics, tmp_path):
    return RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "checkpoints"))


def test_a_click_meets_the_row_of_its_time_and_a_repeated_batch_gives_the_same(
    spark, topics, committed, names, settings, tmp_path
):
    send(topics, names["users"], [(10, "ada", user("ada", "cz")), (30, "ada", user("ada", "at")), (50, "ada", None),
                                  (10, "eve", user("eve", "uk")), (30, "eve", b"{broken")])  # fmt: skip
    send(topics, names["clicks"], [click(5, "ada", "a"), click(20, "ada", "b"), click(30, "ada", "c"), click(60, "ada", "d"),
                                   click(20, "eve", "e"), click(40, "eve", "f"), click(20, "max", "g"), click(1, None, "h")])  # fmt: skip
    pipeline = clicks_with_users(names)
    PipelineRun(spark, pipeline, settings).once()
    expected = [("a", None), ("b", "cz"), ("c", "at"), ("d", None), ("e", "uk"), ("f", None), ("g", None), ("h", None)]
    assert seen(committed, names["seen"]) == expected
    # Only the state has these rows now; then the batch runs again, although both topics went on.
    send(topics, names["users"], [(70, "ada", user("ada", "de"))])
    send(topics, names["clicks"], [click(80, "ada", "i"), click(80, "eve", "j")])
    PipelineRun(spark, pipeline, settings).once()
    expected += [("i", "de"), ("j", None)]
    assert seen(committed, names["seen"]) == expected
    letters = f"{names['users']}~{names['bad']}"
    assert forget_last_commits(tmp_path / "checkpoints") == ["seen", letters]
    send(topics, names["users"], [(75, "ada", user("ada", "fr")), (75, "eve", user("eve", "fr"))])
    send(topics, names["clicks"], [click(90, "ada", "k")])
    PipelineRun(spark, pipeline, settings).once()
    assert seen(committed, names["seen"]) == [*expected, ("k", "fr")]


def test_a_global_table_is_the_same_when_its_batch_runs_again(spark, topics, committed, names, settings, tmp_path):
    """Earlier versions read the table again, found another content than their marker, and could never go on."""
    pipeline = Pipeline("clicks")

    @pipeline.step(
        reads={
            "clicks": topic(names["clicks"], value="json", schema=CLICK),
            "users": table_of(topic(names["users"], value="json", schema=USER)),
        },
        writes={
            "seen": topic(names["seen"], value="json", key="user"),
            "strange": topic(names["bad"], value="json", key="user"),
        },
    )
    def seen_(clicks, users):
        rows = clicks.join(users.select(F.col("_key").alias("user"), "country"), "user", "left")
        return {"seen": rows.where("country is not null"), "strange": rows.where("country is null")}

    send(topics, names["users"], [(1, "ada", user("ada", "at")), (1, "eve", user("eve", "uk"))])
    send(topics, names["clicks"], [(2, None, {"user": who, "page": who}) for who in ("ada", "eve", "max")])
    PipelineRun(spark, pipeline, settings).once()
    assert forget_last_commits(tmp_path / "checkpoints") == ["seen-.seen", "seen-.strange"]
    send(
        topics,
        names["users"],
        [(3, "ada", user("ada", "somewhere else")), (3, "eve", None), (3, "max", user("m", "x"))],
    )
    send(topics, names["clicks"], [(4, None, {"user": who, "page": f"{who}2"}) for who in ("ada", "eve", "max")])
    PipelineRun(spark, pipeline, settings).once()
    assert seen(committed, names["seen"]) == [
        ("ada", "at"), ("ada2", "somewhere else"), ("eve", "uk"), ("max2", "x"),
    ]  # fmt: skip
    assert seen(committed, names["bad"]) == [("eve2", None), ("max", None)]


def test_two_tables_and_a_foreign_key_beside_the_model(spark, topics, committed, names, settings):
    """Updates of a table, with tombstones, in a compacted topic: equal to the model by every update of every key."""
    left, right = (topics.new(stem, 2, retention_ms="-1") for stem in ("orders", "parts"))
    out, foreign_out = topics.new("joined", 2), topics.new("foreign", 2)
    pipeline = Pipeline("tables")
    reads = {
        "left": changes_of(topic(left, value="json", schema="l string, part string")),
        "right": changes_of(topic(right, value="json", schema="r string")),
    }

    @pipeline.step(reads=reads, writes=topic(out, value="json", key="_key", compacted=True))
    def joined(left, right):
        return join_tables(left, right, how="outer")

    @pipeline.step(reads=reads, writes=topic(foreign_out, value="json", key="_key", compacted=True))
    def foreign(left, right):
        return join_tables(left, right, how="left", foreign_key="part")

    draw = random.Random(7)
    history = table_model.history(draw, 60, deletes=(0.25, 0.25))
    for piece in (history[:35], history[35:]):
        for side, name in enumerate((left, right)):
            send(topics, name, [(one.at, one.key, _value(one)) for one in piece if one.side == side])
        PipelineRun(spark, pipeline, settings).once()
    assert _updates(committed(out)) == table_model.table_table(history, how="outer")
    assert _updates(committed(foreign_out)) == table_model.foreign_key(history, how="left")


def _value(record: Record):
    if record.value is None:
        return None
    return {"l": record.value, "part": record.refers_to} if record.side == 0 else {"r": record.value}


def _updates(records):
    updates: table_model.Updates = {}
    for record in sorted(records, key=lambda record: record["offset"]):
        value = None if record["value"] is None else json.loads(record["value"])
        updates.setdefault(record["key"].decode(), []).append(value and (value.get("l"), value.get("r")))
    return updates


def test_the_function_of_a_step_joins_plain_frames(spark):
    """A test of a step needs no broker; every type comes back as it was."""
    sql = (
        "select 1L id, 'x' `a.b c`, 3Y small, 1234567890123456.0001BD price, double('nan') ratio, float(0.1) single, true ok, "
        "date'1969-12-31' day, timestamp'2026-03-29 01:30:00.123456Z' at, timestamp_ntz'1999-01-01 00:00:00.000001' local, "
        "x'00ff' data, array(struct(1 as x, timestamp'1901-01-01 00:00:00.5Z' as y), null) list, "
        "map('k', double('infinity'), 'n', null) pairs"
    )
    row = spark.sql(sql)
    stream = row.withColumnsRenamed({name: f"s_{name}" for name in row.columns}).withColumns(
        {"user": F.lit("ada"), "_timestamp": F.timestamp_millis(F.lit(5))}
    )
    table = row.withColumns({"_key": F.lit("ada"), "_timestamp": F.timestamp_millis(F.lit(1))})
    result = join(stream, table, on="user")
    values = table.drop("_key", "_timestamp")
    assert result.dtypes == [*stream.dtypes, *values.dtypes]
    (joined,) = result.collect()
    (original,) = row.collect()
    assert str(list(joined)[: len(original)]) == str(list(original)) == str(list(joined)[-len(original) :])


def test_a_join_that_cannot_be_is_one_sentence(spark):
    table = spark.sql("select '1' as _key, timestamp'2026-01-01' as _timestamp, 1 as n, map(1, 2) as m")
    stream = spark.sql("select '1' as id, timestamp'2026-01-01' as _timestamp, 2 as n")
    with pytest.raises(UserError, match="both sides of the join have a column 'n': rename"):
        join(stream, table.drop("m"), on="id")
    with pytest.raises(UserError, match="the stream of the join has no column 'user', only id, _timestamp, n: keep"):
        join(stream, table, on="user")
    with pytest.raises(
        UserError, match=r"has no column '_timestamp'.*: keep that column in the select before the join"
    ):
        join(stream.select("id"), table, on="id")
    with pytest.raises(UserError, match=r"the column 'm' of a join with a table has the type map<int,int>.*: cast it"):
        join(stream.drop("n"), table, on="id")
    with pytest.raises(UserError, match="how='outer' is not a kind of this join: use inner or left"):
        join(stream, table, on="id", how="outer")


def test_a_failure_between_the_state_and_the_output(spark, topics, names, settings, tmp_path):
    """The tasks of a batch have written their state, then the driver dies: the batch runs again on the state before it."""
    reads = next(iter(clicks_with_users(names).steps)).reads
    send(topics, names["users"], [(10, "ada", user("ada", "cz")), (10, "eve", user("eve", "uk"))])
    send(topics, names["clicks"], [(20, None, {"user": who, "page": who}) for who in ("ada", "eve")])
    outputs: dict[int, list[tuple[str, str]]] = {}
    failing = {1}

    def write(frame, batch):
        rows = sorted((row.page, row.country) for row in frame.collect())
        if batch in failing:
            failing.remove(batch)
            raise ConnectionError(f"the driver dies in batch {batch}")
        outputs[batch] = rows

    def run():
        inputs = {name: build.input_frame(spark, port, settings) for name, port in reads.items()}
        rows = join(inputs["clicks"], inputs["users"], on="user", emit_on_table_change=True)
        writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "one"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    send(topics, names["users"], [(30, "ada", user("ada", "at")), (50, "ada", user("ada", "de")), (40, "eve", None)])
    send(
        topics,
        names["clicks"],
        [(40, None, {"user": "ada", "page": "second"}), (50, None, {"user": "eve", "page": "x"})],
    )
    with pytest.raises(StreamingQueryException, match="the driver dies in batch 1"):
        run()
    send(topics, names["users"], [(60, "eve", user("eve", "fr"))])
    run()
    assert outputs == {
        0: [("ada", "cz"), ("eve", "uk")],
        1: [("ada", "at"), ("second", "at"), ("second", "de")],
        2: [("x", "fr")],
    }


def test_a_window_behind_a_join_and_a_step_that_changed_its_inputs(spark, topics, committed, names, settings):
    pipeline = Pipeline("clicks")
    clicks = topic(names["clicks"], value="json", schema=CLICK)
    users = topic(names["users"], value="json", schema=USER)

    @pipeline.step(
        reads={"clicks": clicks, "users": changes_of(users)}, writes=topic(names["seen"], value="json", key="country")
    )
    def seen(clicks, users):
        rows = join(clicks, users, on="user").withWatermark("_timestamp", "1 second")
        counted = rows.groupBy(F.window("_timestamp", "1 minute"), "country").count()
        return counted.selectExpr("country", "country as page", "count")

    send(topics, names["users"], [(1, "ada", user("ada", "cz"))])
    send(topics, names["clicks"], [(at, None, {"user": "ada", "page": "p"}) for at in (2, 3, 600_000)])
    PipelineRun(spark, pipeline, settings).once()
    assert [json.loads(row["value"]) for row in committed(names["seen"])] == [
        {"country": "cz", "page": "cz", "count": 2}
    ]
    changed = Pipeline("clicks")

    def without_users(clicks):
        return clicks.selectExpr("user as country")

    without_users.__name__ = "seen"
    changed.step(reads={"clicks": clicks}, writes=topic(names["seen"], value="json", key="country"))(without_users)
    with pytest.raises(StepFailed, match="the step has other inputs than its checkpoint: run the step as it was"):
        PipelineRun(spark, changed, settings).once()
