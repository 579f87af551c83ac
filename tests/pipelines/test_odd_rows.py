"""What rows are really like, through Spark: rows of one key in one batch, keys that are null, large ones, odd names and times."""

from __future__ import annotations

import json

import pytest

from ottla.connect.sinks.delta import read_delta
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import topic, view
from ottla.pipelines.run import PipelineRun, StepFailed
from ottla.tables.query import topic_table
from tests.pipelines.conftest import Topics

pytestmark = pytest.mark.timeout(600)
START_MS = 1_790_000_000_000
SCHEMA = "`ke y.é` string, n long, price decimal(20,4), at timestamp, deep struct<a: array<int>, b: string>"


@pytest.fixture
def topics(ottla_server):
    return Topics(ottla_server)


def values(topics, name):
    rows = topic_table({"bootstrap.servers": topics.servers}, name).to_pylist()
    return {row["key"].decode(): None if row["value"] is None else json.loads(row["value"]) for row in rows}


def test_a_view_keeps_the_last_row_of_a_key_on_both_sides(spark, topics, tmp_path):
    name = topics.new("events", 2)
    rows = [
        {
            "ke y.é": f"k{n % 3}",
            "n": n,
            "price": f"{n}.1234",
            "at": "2026-11-16T10:00:00Z",
            "deep": {"a": [n], "b": None},
        }
        for n in range(60)
    ]
    topics.send(name, [(row["ke y.é"].encode(), json.dumps(row).encode()) for row in rows])
    newest = view(f"{name}-newest", str(tmp_path / "newest"), keys=["ke y.é"])
    pipeline = Pipeline("odd")

    @pipeline.step(reads={"events": topic(name, value="json", schema=SCHEMA)}, writes=newest)
    def latest(events):
        return events.select("`ke y.é`", "n", "price", "at", "deep")

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "c"))
    PipelineRun(spark, pipeline, settings).once()
    table = {row["ke y.é"]: row for row in read_delta(str(tmp_path / "newest"))[0].to_pylist()}
    assert {key: row["n"] for key, row in table.items()} == {"k0": 57, "k1": 58, "k2": 59}
    assert (str(table["k0"]["price"]), table["k0"]["deep"]) == ("57.1234", {"a": [57], "b": None})
    told = topic_table({"bootstrap.servers": topics.servers}, newest.topic.name).to_pylist()
    assert len(told) == 3  # one record for each key, not the order in which tasks came
    assert {key: row["n"] for key, row in values(topics, newest.topic.name).items()} == {"k0": 57, "k1": 58, "k2": 59}
    topics.send(name, [(b"x", b'{"n": 1}')])
    with pytest.raises(StepFailed, match=r"has no value in its key \(ke y\.é\)"):
        PipelineRun(spark, pipeline, settings).once()
    assert len(read_delta(str(tmp_path / "newest"))[0]) == 3
    assert len(topic_table({"bootstrap.servers": topics.servers}, newest.topic.name)) == 3


ZONES = ("Asia/Kathmandu", "UTC", "America/New_York")
EARLY = ("1969-12-31 23:59:59.999", "1950-01-01", "1969-12-31 23:59:59.998", "1970-01-01")


@pytest.mark.parametrize(
    ("zones", "times"), [(ZONES[:1], EARLY[:2]), pytest.param(ZONES, EARLY, marks=pytest.mark.soak)], ids=["few", "all"]
)
def test_times_are_cut_alike_in_every_zone(spark, topics, zones, times):
    name = topics.new("times", 1, retention_ms="-1")
    topics.send(name, [(None, str(n).encode(), START_MS + n * 3_600_000) for n in range(48)])
    zone = spark.conf.get("spark.sql.session.timeZone")
    frame = spark.read.format("ottla").options(**topics.options(subscribe=name)).load()
    try:
        for here in zones:
            spark.conf.set("spark.sql.session.timeZone", here)
            assert frame.where(f"timestamp >= timestamp_millis({START_MS + 20 * 3_600_000})").count() == 28, here
            assert frame.where(f"timestamp = timestamp_millis({START_MS + 20 * 3_600_000})").count() == 1, here
        for early in times:
            assert frame.where(f"timestamp > timestamp '{early}'").count() == 48, early
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_large_records_empty_topics_and_none_at_all(spark, topics):
    name = topics.new("large", 2, max_message_bytes="8000000")
    frame = spark.range(1).selectExpr("repeat('x', 3000000) as value")
    where = topics.options(topic=name)
    with pytest.raises(Exception, match=r"3,000,000 bytes is larger.*max\.request\.size"):
        frame.write.format("ottla").options(**where).mode("append").save()
    frame.write.format("ottla").options(**where, **{"kafka.max.request.size": "6000000"}).mode("append").save()
    read = spark.read.format("ottla").options(**topics.options(subscribe=name)).load()
    assert [row.n for row in read.selectExpr("length(value) as n").collect()] == [3_000_000]
    empty = topics.new("nothing", 2)
    assert spark.read.format("ottla").options(**topics.options(subscribe=empty)).load().count() == 0
    none = spark.read.format("ottla").options(**topics.options(subscribePattern="no-such-.*")).load()
    assert none.count() == 0


def test_csv_with_odd_columns(spark, topics, tmp_path):
    name = topics.new("csv", 1)
    topics.send(name, [(None, b'7,"a, b",1.50')])
    schema = "`i d` int, `na``me é` string, price decimal(10,2)"
    pipeline = Pipeline("csv")

    @pipeline.step(
        reads={"rows": topic(name, value="csv", schema=schema)}, writes=topic(f"{name}-out", value="json", key="i d")
    )
    def same(rows):
        return rows

    PipelineRun(spark, pipeline, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))).once()
    assert values(topics, f"{name}-out") == {"7": {"i d": 7, "na`me é": "a, b", "price": 1.5}}
