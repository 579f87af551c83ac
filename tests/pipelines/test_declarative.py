"""`format("ottla")` inside Spark's own declarative pipelines: the example, run by `spark-pipelines`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from ottla.connect.sender import Outgoing, Sender
from ottla.pipelines.session import use_java
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT
from tests.pipelines.conftest import Topics

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def test_the_example_of_spark_pipelines(ottla_server, tmp_path):
    use_java()
    topics = Topics(ottla_server)
    for name in ("hits", "slow"):
        topics.make(name, 1)
    client = {"bootstrap.servers": ottla_server.bootstrap_servers}
    sender = Sender(client)
    sender.send(Outgoing("hits", b"/%d" % (n % 3), b"%d" % n) for n in range(100))
    sender.flush()
    folder = tmp_path / "declarative"
    shutil.copytree(ROOT / "examples" / "declarative", folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("storage: storage", f"storage: file://{folder}/storage"))
    done = subprocess.run(
        [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run", "--spec", str(spec)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "OTTLA_BOOTSTRAP_SERVERS": ottla_server.bootstrap_servers,
        },
        capture_output=True, text=True, timeout=600, check=False, cwd=folder,
    )  # fmt: skip
    # PySpark 4.3.0 may fail after the end of the run (UNKNOWN_RESPONSE): the events decide.
    assert "Run is COMPLETED" in done.stdout + done.stderr, done.stdout[-2000:] + done.stderr[-3000:]
    rows = topic_table(client, "slow").to_pylist()
    assert sorted(int(row["value"]) for row in rows) == list(range(50, 100))
