"""Files of an input table that change while a pipeline runs: the next micro-batch reads them."""

from __future__ import annotations

import json
import shutil

import pytest

from ottla.pipelines import Pipeline, file_inputs, spark_table, topic
from ottla.pipelines.build import RunSettings, input_frame
from ottla.pipelines.file_inputs import FileInputs
from ottla.pipelines.run import PipelineRun

pytestmark = pytest.mark.timeout(1800)
WITH_HEADER = {"header": "true"}


def rows_of(committed, target):
    return [json.loads(row["value"]) for row in committed(target, undecided=True)]


def test_a_running_query_reads_a_file_that_was_added(spark, topics, committed, tmp_path, monkeypatch):
    monkeypatch.setattr(file_inputs, "LISTED_S", 0.0)
    monkeypatch.setattr(file_inputs, "_PAUSES", 0.0)
    source, target = topics.new("orders", 1), topics.new("named", 1)
    names = tmp_path / "names"
    names.mkdir()
    (names / "1.csv").write_text("n,city\n1,Oslo\n")
    naming = Pipeline("naming")

    @naming.step(
        reads={
            "orders": topic(source, value="json", schema="n long"),
            "names": spark_table("csv", {"path": str(names), **WITH_HEADER}),
        },
        writes=topic(target, value="json"),
    )
    def named(orders, names):
        return orders.join(names, orders["n"].cast("string") == names["n"], "left").select(orders["n"], "city")

    run = PipelineRun(spark, naming, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "state")))
    topics.send(source, [(None, b'{"n": 1}')])
    steps = iter(
        [
            lambda: len(rows_of(committed, target)) == 1,
            lambda: (names / "2.csv").write_text("n,city\n2,Bern\n"),
            lambda: topics.send(source, [(None, b'{"n": 2}')]) is None,  # the folder was listed before this call
            lambda: len(rows_of(committed, target)) == 2,
        ]
    )
    step = next(steps)

    def follow(run):
        nonlocal step
        if step():
            step = next(steps, None)
            if step is None:
                run.stop()

    run.continuously(follow, poll_s=0.2)
    assert rows_of(committed, target) == [{"n": 1, "city": "Oslo"}, {"n": 2, "city": "Bern"}]


def test_a_folder_that_cannot_be_listed_is_a_warning_until_the_folder_is_back(spark, tmp_path):
    now = 0.0
    names, kept = tmp_path / "names", tmp_path / "kept"
    spark.range(3).coalesce(1).write.json(str(names))
    settings = RunSettings(bootstrap_servers="127.0.0.1:1", checkpoints=str(tmp_path))
    frame = input_frame(spark, spark_table("json", {"path": str(names)}), settings)
    inputs, warnings = FileInputs(clock=lambda: now), ["a different warning"]
    inputs.add([frame, spark.range(1)])
    shutil.move(names, kept)
    inputs.refresh(warnings)
    assert warnings == ["a different warning"], "the folder was listed a moment ago"
    for now in (1.0, 2.0):  # noqa: B007 - the clock reads it
        inputs.refresh(warnings)
        assert len(warnings) == 2
        assert warnings[1].startswith(f"the files of file:{names} cannot be listed, the last list counts: ")
        assert warnings[1].endswith(f"file:{names} does not exist"), "Spark would list an empty table"
    shutil.copytree(kept, names)
    spark.range(2).coalesce(1).write.mode("append").json(str(names))
    now = 3.0
    inputs.refresh(warnings)
    assert warnings == ["a different warning"]
    assert frame.count() == 5


def test_a_long_listing_is_followed_by_a_long_pause(spark, tmp_path):
    """A folder of very many files must not keep the driver from its other work."""
    spark.range(1).write.json(str(tmp_path / "names"))
    times = iter([0.0, 1.0, 3.0, 20.9, 21.0, 21.0])
    inputs = FileInputs(clock=lambda: next(times))
    inputs.add([spark.read.json(str(tmp_path / "names"))])
    listing = inputs._listings[0]
    inputs.refresh([])  # from 1.0 to 3.0
    assert listing.due == 3.0 + 9 * 2.0
    inputs.refresh([])  # 20.9 is too early
    assert next(times) == 21.0
