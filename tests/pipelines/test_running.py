"""Pipelines as processes: started, watched, served over HTTP and stopped; run again over history; run by Spark Connect."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from ottla.connect.sender import Outgoing, Sender
from ottla.connect.sinks.delta import read_delta
from ottla.pipelines.session import _worker_python, use_java
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT, OttlaServer
from tests.pipelines.conftest import PROPERTIES, Topics
from tests.support.ports import free_port

pytestmark = pytest.mark.timeout(1200)
FILE = str(Path(__file__).with_name("hits_pipeline.py"))
SMALL = [
    word
    for one in ("spark.sql.shuffle.partitions=1", "spark.driver.memory=768m",
                "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    for word in ("--conf", one)
]  # fmt: skip


class Bed:
    """A server with hits in it, and `ottla` with a state folder of its own."""

    def __init__(self, folder: Path, server: OttlaServer) -> None:
        self.folder, self.server = folder, server
        self.client = {"bootstrap.servers": server.bootstrap_servers}
        self.environment = {
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "OTTLA_STATE": str(folder / "state"),
            "OTTLA_TEST_OUT": str(folder / "out"), "SPARK_LOCAL_IP": "127.0.0.1",
        }  # fmt: skip
        Topics(server).make("hits", 2, retention_ms="-1")

    def send(self, numbers: range) -> None:
        sender = Sender(self.client)
        rows = [json.dumps({"page": f"/{n % 3}", "ms": n}).encode() for n in numbers]
        sender.send(
            Outgoing("hits", None, row, timestamp_ms=1_700_000_000_000 + n)
            for n, row in zip(numbers, rows, strict=True)
        )
        sender.flush()

    def ottla(self, *words: str, timeout: float = 200) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", *words],
            env=self.environment, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def status(self) -> dict:
        return json.loads(self.ottla("pipeline", "status", "hits", "-o", "json"))

    def await_rows(self, rows: int) -> dict:
        deadline = time.monotonic() + 400
        while time.monotonic() < deadline:
            found = self.status()
            assert found["state"] in {"starting", "running"}, found
            done = {one["step"]: one["rows"] for one in found.get("queries", [])}
            if done == {"slow": rows, "pages": rows} and not found["lag"]:
                return found
            time.sleep(0.2)
        pytest.fail(f"{found} {Path(found['log']).read_text()[-2000:]}")

    def values(self, topic: str) -> list[dict]:
        return [json.loads(row["value"]) for row in topic_table(self.client, topic).to_pylist()]


@pytest.fixture
def bed(tmp_path):
    server = OttlaServer(tmp_path / "server", properties=PROPERTIES)
    server.start()
    made = Bed(tmp_path, server)
    try:
        yield made
    finally:
        subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", "pipeline", "stop", "hits"], env=made.environment, check=False
        )
        server.stop()


def get(address: str) -> dict:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)


def await_listener(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 20).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "nobody serves"
            time.sleep(0.1)
        else:
            return


def expected(numbers: range) -> list[dict]:
    return [
        {"page": f"/{p}", "n": len(range(p, numbers.stop, 3)), "ms": sum(range(p, numbers.stop, 3))} for p in range(3)
    ]


def test_start_status_list_serve_stop(bed):
    bed.send(range(100))
    servers = bed.server.bootstrap_servers
    said = bed.ottla("pipeline", "start", FILE, "-b", servers, "--master", "local[2]", *SMALL)
    assert said.startswith("hits: started as process ")
    port = free_port()
    serving = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", "pipeline", "serve", "-l", f"127.0.0.1:{port}"], env=bed.environment
    )
    try:
        found = bed.await_rows(100)
        assert {one["name"] for one in found["queries"]} >= {"hits/slow", "hits/pages"}
        assert "hits" in bed.ottla("pipeline", "list")
        assert "pages" in bed.ottla("pipeline", "status", "hits")
        again = subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", "pipeline", "start", FILE, "-b", servers],
            env=bed.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert again.returncode == 1
        assert again.stderr.startswith("ottla: hits is already running")
        # The view is read while it runs, with the offsets that it is true at.
        base = f"http://127.0.0.1:{port}/pipelines"
        await_listener(port)
        assert [(one["name"], one["state"]) for one in get(base)] == [("hits", "running")]
        seen = get(f"{base}/hits/views/pages")
        assert sorted(seen["rows"], key=lambda row: row["page"]) == expected(range(100))
        assert sum(seen["true_at"]["hits"].values()) == 100
        assert get(f"{base}/hits/graph.json")["inputs"] == ["topic:hits"]
        bed.send(range(100, 130))
        bed.await_rows(130)
        with pytest.raises(urllib.error.HTTPError) as problem:
            get(f"{base}/hits/views/nothing")
        assert problem.value.code == 400
        stopping = urllib.request.Request(f"{base}/hits/stop", method="POST")
        with urllib.request.urlopen(stopping, timeout=120) as answer:
            assert json.load(answer)["state"] == "stopped"
    finally:
        serving.terminate()
        serving.wait(30)
    assert bed.ottla("pipeline", "stop", "hits") == "hits: was not running\n"
    assert Counter(row["ms"] for row in bed.values("slow")) == Counter(range(50, 130))
    newest = {row["page"]: row for row in bed.values("pages")}
    assert [newest[page] for page in sorted(newest)] == expected(range(130))


@pytest.mark.soak
def test_backfill_and_spark_connect(bed):
    bed.send(range(90))
    servers = bed.server.bootstrap_servers
    with SparkConnect(bed) as address:
        told = bed.ottla("pipeline", "run", FILE, "-b", servers, "--remote", address, "--once", "--quiet", timeout=400)
        assert "slow" in told
        bed.send(range(90, 120))
        bed.ottla("pipeline", "run", FILE, "-b", servers, "--remote", address, "--once", "--quiet", timeout=400)
    assert Counter(row["ms"] for row in bed.values("slow")) == Counter(range(50, 120))
    rows = read_delta(f"{bed.folder}/out/pages")[0].to_pylist()
    assert sorted(rows, key=lambda row: row["page"]) == expected(range(120))

    # History again, beside the old outputs: from a time, and from the segment files.
    words = ["pipeline", "backfill", FILE, "-b", servers, "--master", "local[2]", *SMALL, "--quiet"]
    bed.ottla(*words, "--suffix", "-late", "--from-timestamp", str(1_700_000_000_000 + 100), timeout=400)
    assert Counter(row["ms"] for row in bed.values("slow-late")) == Counter(range(100, 120))
    bed.ottla(*words, "--suffix", "-files", "--path", str(bed.server.data_dir), timeout=400)
    assert Counter(row["ms"] for row in bed.values("slow-files")) == Counter(range(50, 120))
    rows = read_delta(f"{bed.folder}/out/pages-files")[0].to_pylist()
    assert sorted(rows, key=lambda row: row["page"]) == expected(range(120))
    assert Counter(row["ms"] for row in bed.values("slow")) == Counter(range(50, 120)), "the old output is as it was"


@pytest.mark.soak
def test_the_new_version_beside_the_old_then_the_switch(bed):
    """Kreps' reprocessing: the old runs, the new is backfilled and goes on from there, the old stops, nothing is missing."""
    servers = bed.server.bootstrap_servers
    words = ["-b", servers, "--master", "local[2]", *SMALL]
    bed.send(range(100))
    bed.ottla("pipeline", "start", FILE, *words)
    bed.await_rows(100)
    new = bed.folder / "new_hits.py"
    new.write_text(Path(FILE).read_text().replace("ms >= 50", "ms >= 20"))
    bed.ottla("pipeline", "backfill", str(new), *words, "--quiet", timeout=900)
    assert Counter(row["ms"] for row in bed.values("slow-v2")) == Counter(range(20, 100))
    bed.send(range(100, 140))
    bed.await_rows(140)
    try:
        told = bed.ottla("pipeline", "switch", str(new), *words, timeout=900).splitlines()
        assert told[-3:] == [
            "hits-v2: has caught up; hits is stopped", "  topic:slow -> topic:slow-v2", "  view:pages -> view:pages-v2",
        ]  # fmt: skip
        assert bed.status()["state"] == "stopped"
        bed.send(range(140, 170))
        deadline = time.monotonic() + 400
        while len(bed.values("slow-v2")) < 150 or sum(_newest(bed, "pages-v2").values()) < 170:
            assert time.monotonic() < deadline, (bed.values("slow-v2"), bed.values("pages-v2"))
            time.sleep(0.5)
    finally:
        bed.ottla("pipeline", "stop", "hits-v2")
    assert Counter(row["ms"] for row in bed.values("slow-v2")) == Counter(range(20, 170))
    assert Counter(row["ms"] for row in bed.values("slow")) == Counter(range(50, 140)), "the old output is as it was"
    newest = {row["page"]: row for row in bed.values("pages-v2")}
    assert [newest[page] for page in sorted(newest)] == expected(range(170))
    rows = read_delta(f"{bed.folder}/out/pages-v2")[0].to_pylist()
    assert sorted(rows, key=lambda row: row["page"]) == expected(range(170))


def _newest(bed: Bed, view: str) -> dict[str, int]:
    """How many hits each page has."""
    return {row["page"]: row["n"] for row in bed.values(view)}


class SparkConnect:
    """A real Spark Connect server."""

    def __init__(self, bed: Bed) -> None:
        use_java()
        port = free_port()
        self.address = f"sc://127.0.0.1:{port}"
        self._port, self._log = port, bed.folder / "connect.log"
        command = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g",
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--conf", "spark.ui.enabled=false",
            "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.sql.shuffle.partitions=1",
            "spark-internal",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, env={**bed.environment, "PYSPARK_PYTHON": _worker_python(), "SPARK_HOME": str(Path(pyspark.__file__).parent)},
            stdout=self._log.open("wb"), stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self) -> str:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return self.address
        self.__exit__()
        pytest.fail(self._log.read_text()[-2000:])

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)
