"""Checkpoints on a real HDFS: a run goes on where the last one ended, and reset removes all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ottla.connect.sender import Outgoing, Sender
from ottla.pipelines.build import RunSettings, trigger_of
from ottla.pipelines.pipeline import load_pipelines
from ottla.pipelines.session import use_java
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT
from tests.pipelines.conftest import Topics
from tests.pipelines.stored_pipeline import STORED_PIPELINE
from tests.support.hdfs import hdfs
from tests.support.kafka_jars import Unavailable

pytestmark = [pytest.mark.soak, pytest.mark.interop, pytest.mark.timeout(1800)]


def test_checkpoints_on_hdfs(ottla_server, tmp_path):
    use_java()
    try:
        with hdfs(tmp_path / "hdfs") as address:
            _check(ottla_server, address, tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))


def _check(ottla_server, address: str, tmp_path: Path) -> None:
    topics = Topics(ottla_server)
    source, target, counts = (topics.new(name, 1) for name in ("stored", "stored-out", "stored-counts"))
    file = tmp_path / "stored.py"
    file.write_text(STORED_PIPELINE.format(source=source, target=target, counts=counts))
    servers, checkpoints = ottla_server.bootstrap_servers, f"{address}/user/ottla/checkpoints"
    words = ["-b", servers, "--checkpoints", checkpoints, "--state", str(tmp_path / "state")]
    for begin, end in ((0, 50), (50, 150)):
        sender = Sender({"bootstrap.servers": servers})
        sender.send(Outgoing(source, None, b'{"n": %d}' % n) for n in range(begin, end))
        sender.flush()
        done = _ottla("run", str(file), "--once", "--quiet", "--max-offsets-per-trigger", "40", *words)
        assert done.returncode == 0, done.stderr + done.stdout
    client = {"bootstrap.servers": servers}
    assert Counter(json.loads(row["value"])["n"] for row in topic_table(client, target).to_pylist()) == Counter(
        range(150)
    )
    newest = {row["key"]: json.loads(row["value"])["count"] for row in topic_table(client, counts).to_pylist()}
    assert newest == {b"0": 75, b"1": 75}
    assert not list(Path.cwd().glob("hdfs:*"))
    done = _ottla("reset", "stored", "--yes", *words)
    assert done.returncode == 0, done.stderr
    again = _ottla("reset", "stored", "--yes", *words)
    assert "there is no checkpoint" in again.stderr
    (pipeline,) = load_pipelines(str(file))
    settings = RunSettings(bootstrap_servers=servers, checkpoints=checkpoints)
    assert {trigger_of(step, settings) for step in pipeline.steps} == {"1 second"}, "HDFS is no object store"


def _ottla(*words: str) -> subprocess.CompletedProcess[str]:
    conf = ["spark.sql.shuffle.partitions=1", "spark.driver.memory=900m"]
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "pipeline", *words, *[word for one in conf for word in ("--conf", one)]],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
