"""Expectations: rows that fail are counted, quarantined, dropped or an error, exactly once with their batch."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from rich.console import Console

from ottla.connect.sinks.delta import read_delta
from ottla.model.user_error import UserError
from ottla.pipelines.analysis import check_expectations, problems
from ottla.pipelines.backfills import backfilled
from ottla.pipelines.build import RunSettings
from ottla.pipelines.checked_rows import checked
from ottla.pipelines.display import expectation_table
from ottla.pipelines.expectations import expect, expectations_of
from ottla.pipelines.graph import graph
from ottla.pipelines.metrics import exposition
from ottla.pipelines.openlineage import LineageReporter
from ottla.pipelines.pipeline import Pipeline, load_pipelines
from ottla.pipelines.ports import delta, topic, view
from ottla.pipelines.run import PipelineRun, StepFailed
from ottla.pipelines.running import Running
from ottla.pipelines.status import pipeline_status
from ottla.pipelines.topic_rows import output_rows
from ottla.pipelines.topics import output_topics
from tests.pipelines.conftest import Topics

pytestmark = pytest.mark.timeout(600)
ORDERS = [(1, 5.0), (2, -1.0), (3, None), (4, 7.0), (None, -2.0)]
NOWHERE = RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints="")


@pytest.fixture
def topics(ottla_server):
    return Topics(ottla_server)


def orders(name, **more):
    return topic(name, value="json", schema="id long, total double", **more)


def shop(name, writes, *expectations, source="orders", **more):
    made = Pipeline(name)

    def totals(rows):
        return rows.select("id", "total", "_topic", "_partition", "_offset", "_headers")

    for expectation in reversed(expectations):
        totals = expectation(totals)
    made.step(reads={"rows": orders(source)}, writes=writes, **more)(totals)
    return made


def send_orders(topics, source):
    values = [json.dumps({"id": number, "total": total}) for number, total in ORDERS]
    topics.send(source, [(b"k", value, None, [("trace", b"t")]) for value in values])


def run_once(spark, topics, pipeline, folder, **more):
    work = PipelineRun(spark, pipeline, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(folder), **more))
    work.once()
    return work


POSITIVE = expect("total >= 0", on_fail="quarantine")
HAS_ID = expect("id is not null", on_fail="quarantine", name="has an id")
SMALL = expect("id < 4", on_fail="drop")


def test_declared_beside_the_function_in_either_order():
    made = Pipeline("shop")

    @made.step(reads={"rows": orders("orders")}, writes=topic("out"), quarantine="bad")
    @expect("total >= 0", on_fail="quarantine")
    @expect("id > 0", on_fail="drop", name="positive")
    def below(rows):
        return rows

    @expect("id > 0", on_fail="fail")
    @made.step(reads={"rows": orders("orders")}, writes=topic("out"))
    def above(rows):
        return rows

    assert below("rows") == "rows", "the function stays a plain function"
    assert [one.name for one in expectations_of(below)] == ["total >= 0", "positive"]
    assert [one.on_fail for one in expectations_of(made.steps[1].function)] == ["fail"]
    with pytest.raises(UserError, match="on_fail of @expect is quarantine, drop or fail, not 'warn'"):
        expect("id > 0", on_fail="warn")


@pytest.mark.parametrize(
    ("expectations", "more", "words"),
    [
        ((POSITIVE,), {}, "needs a topic for the rows: name the topic with quarantine="),
        ((SMALL,), {"quarantine": "bad"}, "quarantine='bad' gets no row"),
        ((POSITIVE,), {"quarantine": "orders"}, "quarantine orders is an input or output of its own step"),
        ((POSITIVE,), {"quarantine": "bad", "output_mode": "complete"}, "again: use on_fail drop or fail"),
        ((SMALL, SMALL), {}, "two expectations have the name 'id < 4'"),
        ((expect("id > 0", on_fail="drop", branch="large"),), {}, "is for the output 'large'"),
    ],
)
def test_expectations_that_contradict_the_step(expectations, more, words):
    (step,) = shop("shop", topic("out"), *expectations, **more).steps
    with pytest.raises(UserError, match=words):
        check_expectations(step)


def test_the_quarantine_is_an_output_of_the_step():
    made = shop("shop", topic("out"), POSITIVE, quarantine="bad")
    made.step(reads={"rows": topic("bad", value="text")}, writes=topic("repaired"))(lambda rows: rows)
    made.steps.reverse()
    assert [step.name for step in made.in_order()] == ["totals", "<lambda>"]
    made.steps.reverse()
    assert "topic:bad" in {node["id"] for node in graph(made)["nodes"]}
    assert "bad" in {port.name for port in output_topics(made.steps)}
    again = backfilled(made, "-v2")
    assert again.steps[0].quarantine == "bad-v2"
    assert again.steps[1].reads["rows"].name == "bad-v2"
    made.steps[1] = replace(made.steps[1], writes={"": topic("orders")})
    assert len(made.in_order()) == 2, "a repair that writes the input again is no circle"


BROKEN = {
    "totl >= 0": "there is no column totl",
    "total >=": "[Ss]yntax error",
    "total": "BOOLEAN",
    "sum(total) > 0": "contains invalid expressions",
    "rand() > 0.5": "may give a different result for the same row",
}


@pytest.mark.parametrize("condition", BROKEN)
def test_validate_refuses_a_condition(spark, condition):
    made = shop("shop", topic("out", value="json"), expect(condition, on_fail="drop"))
    (problem,) = problems(spark, made, NOWHERE)
    assert problem.startswith(f"step totals: the expectation {condition!r} ")
    assert re.search(BROKEN[condition], problem), problem


def test_the_page_is_a_pipeline_that_validates(spark, tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs/pipeline-expectations.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.py").write_text(block)
    (made,) = load_pipelines(str(tmp_path / "shop.py"))
    assert [one.name for one in expectations_of(made.steps[0].function)] == [
        "total >= 0",
        "has a page",
        "id is not null",
    ]
    assert problems(spark, made, NOWHERE) == []


def checked_orders(spark, *expectations, schema="id long, total double", rows=ORDERS):
    def step(rows):
        return rows

    for expectation in reversed(expectations):
        step = expectation(step)
    return checked(spark.createDataFrame(rows, schema), expectations_of(step))


def test_a_condition_that_is_null_fails_and_a_deletion_passes(spark):
    kept = checked_orders(spark, expect("total >= 0", on_fail="drop"))
    assert sorted(row.id for row in kept.collect()) == [1, 4]
    assert kept.columns == ["id", "total"]
    lenient = checked_orders(spark, expect("total is null or total >= 0", on_fail="drop"))
    assert sorted(row.id for row in lenient.collect()) == [1, 3, 4]
    tombstones = checked_orders(
        spark, expect("total >= 0", on_fail="drop"),
        schema="id long, total double, _deleted boolean", rows=[(1, None, True), (2, None, False), (3, 1.0, None)],
    )  # fmt: skip
    assert sorted(row.id for row in tombstones.collect()) == [1, 3]


def test_a_row_that_does_not_fit_the_schema_of_the_output_is_quarantined(spark):
    """Python encodes all rows of a batch: a row without a total is no Avro record of the output."""
    schema = {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in
                                                            (("id", "long"), ("total", "double"))]}  # fmt: skip
    frame = checked_orders(spark, POSITIVE, HAS_ID)
    port = topic("out", value="avro", schema=json.dumps(schema), key="id")
    rows = {row.key: row for row in output_rows(frame, port, "bad").collect()}
    assert {key: row.topic for key, row in rows.items()} == {
        "1": "out",
        "2": "bad",
        "3": "bad",
        "4": "out",
        None: "bad",
    }
    assert json.loads(rows["3"].value) == {"id": 3, "total": None}
    assert rows["1"].headers is None
    assert rows[None]._identity is not None, "a total is a double, which a repeated batch may add up differently"
    names = [header.value for header in rows[None].headers if header.key == "ottla.expectation.name"]
    assert names == [b"total >= 0", b"has an id"]
    text = checked_orders(spark, POSITIVE).selectExpr("cast(id as string) as value", "__ottla_failed")
    values = {(row.topic, row.value) for row in output_rows(text, topic("out", value="text"), "bad").collect()}
    assert ("bad", b"2") in values, "text is written as it is"


def without_last_commit(folder, name):
    """The checkpoint as after a crash between the writes of the last batch and the note that the batch is done."""
    (commits,) = (folder / name).glob("*/commits")
    batch = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in commits.glob(f"*{batch}*"):
        path.unlink()


def test_a_topic_gets_what_passes_and_the_quarantine_the_reason(spark, topics, committed, tmp_path):
    source, out = topics.new("orders", 1), topics.new("out", 1)
    send_orders(topics, source)
    expectations = POSITIVE, HAS_ID, SMALL
    writes = topic(out, value="json", key="id")
    made = shop("shop", writes, *expectations, source=source, quarantine=f"{out}.bad")
    work = PipelineRun(spark, made, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path)))
    work.is_traced = True
    events = []
    reporter = LineageReporter(events.append, time.monotonic, spark.version)
    work.once(reporter)
    reporter.end(work)
    assert [json.loads(row["value"])["id"] for row in committed(out)] == [1]
    check_lineage(events, topics.servers, source, out)
    bad = committed(f"{out}.bad")
    assert [(row["key"], json.loads(row["value"])) for row in bad] == [
        (b"2", {"id": 2, "total": -1.0}), (b"3", {"id": 3, "total": None}), (None, {"id": None, "total": -2.0})
    ]  # fmt: skip
    headers = [(header["key"], header["value"]) for header in bad[2]["headers"]]
    assert headers[0] == ("trace", b"t")
    facts = dict(headers)
    assert facts["__connect.errors.topic"] == source.encode()
    assert facts["__connect.errors.offset"] == b"4"
    assert facts["__connect.errors.exception.message"] == b"expectation failed: total >= 0, id is not null, id < 4"
    assert [pair for pair in headers if pair[0].startswith("ottla.")] == [
        ("ottla.expectation.name", b"total >= 0"), ("ottla.expectation.condition", b"total >= 0"),
        ("ottla.expectation.name", b"has an id"), ("ottla.expectation.condition", b"id is not null"),
        ("ottla.expectation.name", b"id < 4"), ("ottla.expectation.condition", b"id < 4"),
    ]  # fmt: skip
    assert counts(work) == {"total >= 0": (2, 3), "has an id": (4, 1), "id < 4": (3, 2)}
    # The batch once more, as after a crash: topic and quarantine have the rows of one transaction, and get none again.
    without_last_commit(tmp_path, "shop")
    run_once(spark, topics, made, tmp_path)
    assert len(committed(out)) == 1
    assert len(committed(f"{out}.bad")) == 3


def check_lineage(events, servers, source, out):
    """Datasets, offsets and columns of a run, as OpenLineage has them."""
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    (read,), written = events[1]["inputs"], events[1]["outputs"]
    assert (read["namespace"], read["name"]) == (f"kafka://{servers}", source)
    assert read["inputFacets"]["ottla_offsets"]["partitions"] == {"0": len(ORDERS)}
    assert [dataset["name"] for dataset in written] == [out, f"{out}.bad"]
    fields = written[0]["facets"]["columnLineage"]["fields"]
    assert [field["field"] for field in fields["total"]["inputFields"]] == ["total"]
    assert set(fields) == {"id", "total"}


def counts(work):
    (query,) = pipeline_status(work, "done")["queries"]
    return {one["name"]: (one["passed"], one["failed"]) for one in query["expectations"]}


def test_tables_and_views_get_what_passes(spark, topics, committed, tmp_path):
    """Each row is computed once, so the counts are right; a repeated batch writes nothing again."""
    source, table = topics.new("orders", 1), str(tmp_path / "table")
    send_orders(topics, source)
    made = shop("lake", delta(table, keys=["id"]), POSITIVE, source=source, quarantine=f"{source}.bad")
    work = run_once(spark, topics, made, tmp_path / "checkpoints")
    assert sorted(row["id"] for row in read_delta(table)[0].to_pylist()) == [1, 4]
    assert counts(work) == {"total >= 0": (2, 3)}
    without_last_commit(tmp_path / "checkpoints", "lake")
    run_once(spark, topics, made, tmp_path / "checkpoints")
    assert sorted(row["id"] for row in read_delta(table)[0].to_pylist()) == [1, 4]
    assert [json.loads(row["value"])["id"] for row in committed(f"{source}.bad")] == [2, 3, None]
    # An aggregate changes its rows: the view and its topic get each row that passes.
    path = str(tmp_path / "view")
    summed = Pipeline("summed")

    @summed.step(
        reads={"rows": orders(source)}, writes=view(f"{source}-sums", path, keys=["id"]), output_mode="update",
        quarantine=f"{source}.sums",
    )  # fmt: skip
    @expect("id is not null", on_fail="quarantine")
    @expect("total > 0", on_fail="drop")
    def sums(rows):
        return rows.groupBy("id").agg(F.sum("total").alias("total"))

    run_once(spark, topics, summed, tmp_path / "checkpoints")
    assert sorted(row["id"] for row in read_delta(path)[0].to_pylist()) == [1, 4]
    assert sorted(row["key"] for row in committed(f"{source}-sums")) == [b"1", b"4"]
    assert [json.loads(row["value"])["id"] for row in committed(f"{source}.sums")] == [None]


def test_a_changed_row_of_a_topic_is_quarantined(spark, topics, committed, tmp_path):
    source, out = topics.new("orders", 1), topics.new("out", 1)
    send_orders(topics, source)
    made = Pipeline("changes")

    @made.step(reads={"rows": orders(source)}, writes=topic(out, value="json", key="id"), output_mode="update",
               quarantine=f"{out}.bad")  # fmt: skip
    @expect("total >= 0", on_fail="quarantine")
    def sums(rows):
        return rows.groupBy("id").agg(F.sum("total").alias("total"))

    work = run_once(spark, topics, made, tmp_path)
    assert sorted(json.loads(row["value"])["id"] for row in committed(out)) == [1, 4]
    assert len(committed(f"{out}.bad")) == 3
    assert counts(work) == {"total >= 0": (2, 3)}


def test_fail_names_the_expectation_the_record_and_the_row(spark, topics, committed, tmp_path):
    source, out = topics.new("orders", 1), topics.new("out", 1)
    send_orders(topics, source)
    made = shop("strict", topic(out, value="json"), expect("total >= 0", on_fail="fail"), source=source)
    with pytest.raises(StepFailed) as failed:
        run_once(spark, topics, made, tmp_path)
    row = '{"id":2,"total":-1.0}'
    assert str(failed.value) == f"step totals: expectation failed: total >= 0: {source}-0 offset 1: {row}"
    assert committed(out, undecided=True) == []


def finished(expectations, observed):
    """A query with the progress of one batch."""
    progress = {"timestamp": "2026-11-19T10:00:00.000Z", "numInputRows": 5, "batchId": 0, "observedMetrics": observed}
    query = SimpleNamespace(lastProgress=progress, recentProgress=[progress], isActive=False)
    running = Running(name="shop/totals", step=SimpleNamespace(name="totals"), start=None, query=query)
    running.expectations = expectations_of(
        shop("shop", topic("out"), *expectations, quarantine="bad").steps[0].function
    )
    return running


def test_counts_in_status_table_and_metrics():
    running = finished([POSITIVE, SMALL], {"ottla_expectations": {"rows": 5, "failed_0": 3, "failed_1": 1}})
    running.look()
    running.look()
    assert (running.checked_rows, running.failed_rows) == (5, [3, 1]), "a batch is counted once"
    work = SimpleNamespace(
        running=[running],
        pipeline=shop("shop", topic("out"), POSITIVE, SMALL, quarantine="bad"),
        warnings=[],
        waiting={},
        ui_address="",
    )
    status = pipeline_status(work, "running")
    console = Console(width=80, file=io.StringIO())
    console.print(expectation_table(status))
    lines = console.file.getvalue().splitlines()
    assert [line.split() for line in lines if "quarantine" in line] == [
        ["totals", "total", ">=", "0", "quarantine", "2", "3"]
    ]
    text = exposition([json.loads(json.dumps(status))], now=status["at"] + 2)
    labels = 'pipeline="shop",query="totals"'
    assert f'ottla_pipeline_expectation_rows_total{{{labels},expectation="id < 4",result="failed"}} 1' in text
    assert f"ottla_pipeline_rows_total{{{labels}}} 5" in text
    assert 'ottla_pipeline_state{pipeline="shop",state="running"} 1' in text
    assert 'ottla_pipeline_status_age_seconds{pipeline="shop"} 2' in text
    before = finished([POSITIVE], {})
    before.look()
    assert before.failed_rows == [0], "a batch without rows has no counts"
