"""A failure names its cause, the step, the line of the user's file and the records; and what looked like a failure is none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor

from ottla.model.user_error import UserError
from ottla.pipelines.analysis import problems
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Pipeline, load_pipelines
from ottla.pipelines.ports import delta, topic, view
from ottla.pipelines.reasons import called, plain_reason
from ottla.pipelines.run import PipelineRun, StepFailed
from ottla.pipelines.running import only_waits_for_the_clock
from tests.pipelines.conftest import Topics

pytestmark = pytest.mark.timeout(600)
NOWHERE = RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints="")
FILE = """\
from beside import rate
from ottla.pipelines import Pipeline, changes_of, join, topic

shop = Pipeline("shop")
ROWS = topic("orders", value="json", schema="id long, total double")


@shop.step(reads={"rows": ROWS}, writes=topic("out", value="json"))
def priced(rows):
    return rows.select(prices()["id"])


def prices():
    return {"total": rate()}


@shop.step(reads={"rows": ROWS}, writes=topic("seen", value="json"))
def seen(rows):
    return rows.where(
        "totl > 0"
    )


@shop.step(reads={"rows": ROWS, "users": changes_of(ROWS)}, writes=topic("joined", value="json"))
def joined(rows, users):
    return join(rows.select("id"), users, on="id")
"""


@pytest.fixture
def topics(ottla_server):
    return Topics(ottla_server)


@pytest.fixture
def shop(tmp_path) -> Pipeline:
    """A pipeline file with a module beside it."""
    (tmp_path / "shop.py").write_text(FILE)
    (tmp_path / "beside.py").write_text("def rate():\n    return 2\n")
    (pipeline,) = load_pipelines(str(tmp_path / "shop.py"))
    return pipeline


def test_an_error_of_a_function_has_its_line(shop):
    with pytest.raises(UserError) as raised:
        called(shop.steps[0].function, {"rows": None})
    assert (
        str(raised.value) == "AttributeError: 'NoneType' object has no attribute 'select' in priced (shop.py, line 10)"
    )
    with pytest.raises(UserError, match=r"KeyError: 'id' in priced \(shop\.py, line 10\)"):
        called(shop.steps[0].function, {"rows": SimpleNamespace(select=list)})


def test_validate_and_run_name_step_function_and_line(spark, shop, tmp_path):
    found = problems(spark, shop, NOWHERE)
    assert found[0] == "step priced: KeyError: 'id' in priced (shop.py, line 10)"
    assert found[1].startswith("step seen: there is no column totl")
    assert found[1].endswith("in seen (shop.py, line 19)")
    assert found[2].startswith("step joined: the stream of the join has no column '_timestamp'")
    assert found[2].endswith("in joined (shop.py, line 26)")
    run = PipelineRun(spark, shop, RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints=str(tmp_path)))
    with pytest.raises(StepFailed, match=r"step priced: KeyError: 'id' in priced \(shop\.py, line 10\)"):
        run._declared(shop.steps[0], "")


JAVA = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: \
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/venv/lib/python3.11/site-packages/py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o213.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter$.write(FileFormatWriter.scala:251)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 1 more


=== Streaming Query ===
Identifier: [id = 369a35b0-ecf8-461c-9ab7-21e4f137ed4a, runId = 862afd04-f337-4f1d-a3f9-7a8993000017]
Current Committed Offsets: {PythonStreamingSource(a): {"orders": {"0": 10, "1": 4}, "@ottla": {"version": 1}}}
Current Available Offsets: {PythonStreamingSource(a): {"orders": {"0": 13, "1": 4}, "@ottla": {"version": 1}}}
"""
"""A batch whose table cannot be written, of pyspark 4.3."""
DIVIDED = """[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0. SQLSTATE: 22012
== DataFrame ==
"divide" was called from
/srv/shop.py:12

=== Streaming Query ===
Current Committed Offsets: {}
Current Available Offsets: {PythonStreamingSource(a): {"orders": {"0": 3}}}
"""


def test_an_error_of_java_names_its_cause_line_and_records():
    assert plain_reason(RuntimeError(JAVA)) == (
        "IOException: No space left on device (the batch has the records orders-0 10 to 12)"
    )
    reason = plain_reason(RuntimeError(DIVIDED))
    assert reason.startswith("[DIVIDE_BY_ZERO] Division by zero.")
    assert reason.endswith(" (shop.py, line 12) (the batch has the records orders-0 0 to 2)")
    many = DIVIDED.replace('{"0": 3}', json.dumps({str(number): 1 for number in range(7)}))
    assert plain_reason(RuntimeError(many)).endswith("orders-4 0 to 0 and 2 more partitions)")
    broken = DIVIDED.replace('{"0": 3}}', '{"0": ')
    assert plain_reason(RuntimeError(broken)).endswith("(shop.py, line 12)")


def progress(batch: int, rows: int = 0, end: str = "5", watermark: str = "1970-01-01T00:00:00.000Z") -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "sources": [{"endOffset": end}],
        "eventTime": {"watermark": watermark},
    }


def test_a_query_that_only_waits_for_the_clock():
    assert only_waits_for_the_clock([progress(0, rows=3), progress(1), progress(2)])
    assert not only_waits_for_the_clock([progress(1)]), "due timers run in the first empty batch"
    assert not only_waits_for_the_clock([progress(0, rows=3), progress(1)])
    assert not only_waits_for_the_clock([progress(1), progress(1)]), "the same batch, reported twice"
    assert not only_waits_for_the_clock([progress(1, end="5"), progress(2, end="9")]), "records without rows: markers"
    later = "2026-11-19T00:00:00.000Z"
    assert not only_waits_for_the_clock([progress(1), progress(2, watermark=later)]), "windows may close"


class Idle(StatefulProcessor):
    """A timer of processing time for each user, far in the future."""

    def init(self, handle: Any) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N803 - Spark's names
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
        yield pd.DataFrame({"id": [key[0]], "n": [sum(len(part) for part in rows)]})

    def close(self) -> None:
        """Nothing is held open."""


def test_once_ends_with_timers_of_processing_time(spark, topics, committed, tmp_path):
    """Spark plans empty batches for ever while there are such timers."""
    source, out = topics.new("timers", 1), topics.new("out", 1)
    topics.send(source, [(None, b'{"id": 1}'), (None, b'{"id": 1}')])
    made = Pipeline("timers")

    @made.step(reads={"rows": topic(source, value="json", schema="id long")}, writes=topic(out, value="json"))
    def idle(rows):
        state = rows.select("id").groupBy("id")
        return state.transformWithStateInPandas(Idle(), "id long, n long", "Append", "ProcessingTime")

    PipelineRun(spark, made, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))).once()
    assert [json.loads(row["value"]) for row in committed(out)] == [{"id": 1, "n": 2}]


def test_a_step_that_reads_the_view_of_another_step_starts_the_first_time(spark, topics, committed, tmp_path):
    """The table is there after the first batch of the step that writes the view."""
    users, clicks, out = topics.new("users", 1), topics.new("clicks", 1), topics.new("out", 1)
    topics.send(clicks, [(None, b'{"name": "ada", "page": "/a"}')])

    def pipeline(name):
        made, path = Pipeline(name), str(tmp_path / name)
        seen = view(f"{out}-{name}", path, keys=["name"])

        @made.step(reads={"rows": topic(users, value="json", schema="name string, city string")}, writes=seen)
        def known(rows):
            return rows.select("name", "city")

        @made.step(
            reads={"clicks": topic(clicks, value="json", schema="name string, page string"), "known": delta(path)},
            writes=topic(out, value="json"),
        )
        def placed(clicks, known):
            return clicks.join(known, "name", "left").select("name", "city")

        return made

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "checkpoints"))
    PipelineRun(spark, pipeline("once"), settings).once()
    assert [json.loads(row["value"]) for row in committed(out)] == [{"name": "ada", "city": None}]
    run = PipelineRun(spark, pipeline("live"), settings)
    deadline = time.monotonic() + 400

    def until_rows(work: PipelineRun) -> None:
        if len(committed(out, undecided=True)) > 1 or time.monotonic() > deadline:
            work.stop()

    run.continuously(until_rows)
    assert run.waiting == {}
    assert [json.loads(row["value"])["name"] for row in committed(out)] == ["ada", "ada"]
