"""The same pipeline file on local[*] and on a real standalone Spark cluster, against both servers: equal results."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pyspark
import pytest

from ottla.pipelines.session import use_java
from ottla.tables.query import topic_table
from tests.interop.ottla_server import OttlaServer
from tests.pipelines.conftest import PROPERTIES, Topics
from tests.pipelines.drivers import Driver
from tests.pipelines.round_outputs import Feed, Outputs, verdict
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port
from tests.support.whole_answers import whole

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
ROWS = 600
EXECUTOR = ("spark.executor.memory=512m", "spark.executor.cores=1", "spark.executor.extraJavaOptions=-XX:+UseSerialGC")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A master and two workers of one core each: their address and the folder of the workers."""
    folder = tmp_path_factory.mktemp("spark-cluster")
    use_java()
    port, web = free_port(), free_port()
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    master = f"spark://127.0.0.1:{port}"
    roles = [
        ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)],
        *[
            ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "900m", "--webui-port", "0",
             "--work-dir", str(folder / f"worker{n}"), master]
            for n in range(2)
        ],
    ]  # fmt: skip
    started = []
    with (folder / "cluster.log").open("wb") as log:
        for role in roles:
            process = subprocess.Popen([*command, *role], env=environment, stdout=log, stderr=subprocess.STDOUT)
            started.append(process)
    try:
        _await_workers(f"http://127.0.0.1:{web}/json/", folder / "cluster.log")
        yield master, folder
    finally:
        for process in started:
            process.kill()
            process.wait(30)


def _await_workers(address: str, log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                if json.loads(whole(answer))["aliveworkers"] == 2:
                    return
        except (OSError, HTTPException):
            pass
        time.sleep(0.5)
    pytest.fail(log.read_text()[-2000:])


@pytest.mark.parametrize("kind", [OttlaServer, pytest.param(ApacheKafka, marks=pytest.mark.interop)])
def test_master_and_two_workers(cluster, kind, tmp_path, request):
    if kind is ApacheKafka:
        request.getfixturevalue("requires_apache_kafka")
    master, workers = cluster
    ran_before = len(list(workers.glob("worker*/app-*")))
    server = kind(tmp_path / "server", properties=PROPERTIES)
    server.start()
    try:
        Topics(server).make("in", 4)
        feed = Feed(server, random.Random(7))
        feed.send_rows(ROWS)
        found = {}
        for name, where, conf in (("local", "local[*]", ()), ("cluster", master, EXECUTOR)):
            folder = tmp_path / name
            outputs = Outputs.local(folder / "out", f"-{name}")
            Driver(server.bootstrap_servers, folder, outputs.variables(), where, conf).finish(400)
            assert str(verdict(server, outputs, feed)) == "every input once in every output"
            found[name] = _counts(server, outputs)
        assert found["local"] == found["cluster"]
        assert len(list(workers.glob("worker*/app-*"))) - ran_before == 2, "both workers took part"
    finally:
        server.kill()


def _counts(server: ApacheKafka, outputs: Outputs) -> dict[bytes, bytes]:
    rows = topic_table({"bootstrap.servers": server.bootstrap_servers}, f"counts{outputs.suffix}").to_pylist()
    return {row["key"]: row["value"] for row in rows}
