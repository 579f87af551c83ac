"""The same pipeline file on a real standalone Spark cluster: a master and two workers, against both servers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from ottla.connect.exactly_once import Outgoing, Sender
from ottla.pipelines.session import use_java
from tests.interop.ottla_server import OttlaServer
from tests.pipelines.conftest import PROPERTIES, Topics
from tests.pipelines.test_kill_rounds import WORDS, Driver, check
from tests.support.apache_kafka import ApacheKafka, free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
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
             "--work-dir", str(tmp_path / f"worker{n}"), master]
            for n in range(2)
        ],
    ]  # fmt: skip
    started = []
    with (tmp_path / "cluster.log").open("wb") as log:
        for role in roles:
            process = subprocess.Popen([*command, *role], env=environment, stdout=log, stderr=subprocess.STDOUT)
            started.append(process)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
                    if json.load(answer)["aliveworkers"] == 2:
                        break
            except OSError:
                pass
            time.sleep(0.5)
        else:
            pytest.fail((tmp_path / "cluster.log").read_text()[-2000:])
        yield master
    finally:
        for process in started:
            process.kill()
            process.wait(30)


@pytest.mark.parametrize("kind", [OttlaServer, pytest.param(ApacheKafka, marks=pytest.mark.interop)])
def test_master_and_two_workers(cluster, kind, tmp_path, request):
    if kind is ApacheKafka:
        request.getfixturevalue("requires_apache_kafka")
    server = kind(tmp_path / "server", properties=PROPERTIES)
    server.start()
    try:
        topics = Topics(server)
        for name in ("in", "out", "counts"):
            topics.make(name, 4)
        (tmp_path / "out").mkdir()
        draw = random.Random(7)
        sender = Sender({"bootstrap.servers": server.bootstrap_servers})
        sender.send(
            Outgoing("in", None, json.dumps({"n": n, "word": draw.choice(WORDS)}).encode()) for n in range(1000)
        )
        sender.flush()
        driver = Driver(server.bootstrap_servers, tmp_path, cluster)
        driver.finish(600)
        check(server, tmp_path, 1000)
    finally:
        server.kill()
