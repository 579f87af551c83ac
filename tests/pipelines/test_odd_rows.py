"""What rows are really like, through Spark: rows of one key in one batch, keys that are null, large ones, odd names and times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from ottla.connect.sinks.delta import read_delta
from ottla.pipelines.avro_writing import avro_encoder
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import Format, topic, view
from ottla.pipelines.run import PipelineRun, StepFailed
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT
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
    limited = where | {"kafka.max.request.size": "2000000"}
    with pytest.raises(Exception, match=r"3,000,000 bytes is larger.*max\.request\.size"):
        frame.write.format("ottla").options(**limited).mode("append").save()
    small = topics.options(topic=topics.new("small", 1))
    with pytest.raises(
        Exception, match=r"of 3,000,000 bytes is larger than the topic allows: raise its max\.message\.bytes"
    ):
        frame.write.format("ottla").options(**small).mode("append").save()
    frame.write.format("ottla").options(**where).mode("append").save()
    read = spark.read.format("ottla").options(**topics.options(subscribe=name)).load()
    assert [row.n for row in read.selectExpr("length(value) as n").collect()] == [3_000_000]
    empty = topics.new("nothing", 2)
    assert spark.read.format("ottla").options(**topics.options(subscribe=empty)).load().count() == 0
    none = spark.read.format("ottla").options(**topics.options(subscribePattern="no-such-.*")).load()
    assert none.count() == 0


HEAVY = Format(
    kind="avro",
    schema=json.dumps({
        "type": "record", "name": "Heavy", "fields": [{"name": "n", "type": "long"}, {"name": "data", "type": "bytes"}],
    }),
)  # fmt: skip


def copied(spark, topics, size, count, checkpoints):
    """Large Avro values through a step that decodes and encodes them; the sizes that arrived."""
    limit = str(size + 1_000_000)
    name, target = topics.new("heavy", 1, max_message_bytes=limit), topics.new("heavy-out", 1, max_message_bytes=limit)
    columns = pa.struct([("n", pa.int64()), ("data", pa.binary())])
    write = avro_encoder((HEAVY.schema,), columns)
    producer = Producer({"bootstrap.servers": topics.servers, "message.max.bytes": size + 1_000_000, "linger.ms": 0})
    for number in range(count):
        producer.produce(name, write({"n": number, "data": b"x" * size}))
        producer.flush(60)
    pipeline = Pipeline(f"{name}-p")

    @pipeline.step(reads={"rows": topic(name, value=HEAVY)}, writes=topic(target, value=HEAVY))
    def same(rows):
        return rows.select("n", "data")

    PipelineRun(spark, pipeline, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(checkpoints))).once()
    return [len(row["value"]) for row in topic_table({"bootstrap.servers": topics.servers}, target).to_pylist()]


def test_large_records_pass_a_step_that_decodes_and_encodes_them(spark, topics, tmp_path):
    assert copied(spark, topics, 5_000_000, 3, tmp_path) == [5_000_005] * 3


_HEAVY_RUN = """
import sys
from pathlib import Path
from ottla.pipelines.session import spark
from tests.pipelines.test_odd_rows import At, copied

session = spark("local[1]", config={"spark.driver.memory": "3g"}, log_file=sys.argv[2] + "/spark.log")
assert copied(session, At(sys.argv[1]), 50_000_000, 6, Path(sys.argv[2])) == [50_000_005] * 6
peaks = []
for status in Path("/proc").glob("[0-9]*/status"):
    command = status.with_name("cmdline")
    if b"pyspark.daemon" in command.read_bytes() and sys.argv[3].encode() in status.with_name("environ").read_bytes():
        peaks += [int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")]
print("worker peaks MB", sorted(peak // 1024 for peak in peaks))
session.stop()
assert peaks and max(peaks) < 1000 * 1024, peaks
"""


class At(Topics):
    """Topics of a server that a different process started."""

    def __init__(self, servers):
        super().__init__(SimpleNamespace(bootstrap_servers=servers))


@pytest.mark.soak
def test_records_of_50_mb_need_memory_for_a_few_of_them(topics, tmp_path):
    """300 MB of records in one batch: no Python worker holds more than 1 GB, and the JVM has 3 GB."""
    mark = f"OTTLA_TEST_MARK={tmp_path.name}"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}", "OTTLA_TEST_MARK": tmp_path.name}
    done = subprocess.run(
        [sys.executable, "-c", _HEAVY_RUN, topics.servers, str(tmp_path), mark],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


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
