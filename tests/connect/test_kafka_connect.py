"""Apache Kafka's own Connect, distributed, over Ottla: REST, file source and sink, exactly once over a kill -9.

Its topics (configs, offsets, status), its group and its transactions live in Ottla. So every connector that is written
for Kafka Connect runs over Ottla as it does over Kafka.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from ottla.testing import Broker
from tests.support.committed import committed_lines
from tests.support.kafka_tools import SHARED_CLASSES, jvm_command
from tests.support.ports import free_port
from tests.support.whole_answers import whole

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240), pytest.mark.usefixtures("requires_apache_kafka")]
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", SHARED_CLASSES)


class Worker:
    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.servers = bootstrap_servers
        self.url = f"http://127.0.0.1:{free_port()}"
        self._properties = folder / "worker.properties"
        self._log = folder / "connect.log"
        topics = [f"{kind}.storage.topic=connect-{kind}" for kind in ("offset", "config", "status")]
        factors = [f"{kind}.storage.replication.factor=1" for kind in ("offset", "config", "status")]
        settings = [
            f"bootstrap.servers={bootstrap_servers}",
            "group.id=connect",
            "key.converter=org.apache.kafka.connect.storage.StringConverter",
            "value.converter=org.apache.kafka.connect.storage.StringConverter",
            "exactly.once.source.support=enabled",
            "offset.flush.interval.ms=500",
            "session.timeout.ms=6000",
            "heartbeat.interval.ms=1000",
            f"listeners={self.url}",
        ]
        self._properties.write_text("\n".join(settings + topics + factors))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = jvm_command(
            _JVM, "org.apache.kafka.connect.cli.ConnectDistributed", str(self._properties), log_level="warn"
        )
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer, or None while it has none to give."""
        method = "PUT" if body is not None else "GET"
        request = Request(self.url + path, json.dumps(body or {}).encode() if body else None, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request, timeout=30) as answer:
                return json.loads(whole(answer))
        except (HTTPError, URLError, ConnectionError, TimeoutError, HTTPException):
            return None

    def states(self, name: str) -> list[str]:
        """Of the connector and its tasks; a worker that stood still is about to get them anew."""
        status = self.call(f"/connectors/{name}/status")
        return [] if status is None else [one["state"] for one in (status["connector"], *status["tasks"])]

    def until(self, look: Callable[[], object], what: str, seconds: float = 210) -> None:
        deadline = time.monotonic() + seconds
        while not look():
            assert time.monotonic() < deadline, f"{what}: {self._log.read_text()[-3000:]}"
            time.sleep(0.1)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with Broker(properties={"group.initial.rebalance.delay.ms": "0"}) as broker:
        made = Worker(broker.bootstrap_servers, tmp_path)
        try:
            yield made
        finally:
            made.kill()


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_file_goes_through_a_topic_into_a_file_once(worker: Worker, tmp_path: Path, *, killed: bool) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{number}\n" for number in range(500)))
    package = "org.apache.kafka.connect.file"
    reading = {"connector.class": f"{package}.FileStreamSourceConnector", "file": str(source), "topic": "lines"}
    writing = {"connector.class": f"{package}.FileStreamSinkConnector", "file": str(target), "topics": "lines"}

    def written() -> set[str]:
        return set(target.read_text().split()) if target.exists() else set()

    worker.start()
    worker.until(lambda: worker.call("/connectors/in/config", reading), "the source is taken")
    worker.until(lambda: worker.call("/connectors/out/config", writing), "the sink is taken")
    worker.until(lambda: len(written()) == 500, "500 lines")
    with source.open("a") as more:
        more.write("".join(f"{number}\n" for number in range(500, 1000)))
    if killed:  # somewhere between reading the rest and committing it
        worker.kill()
        worker.start()
    worker.until(lambda: len(written()) == 1000, "1000 lines")
    worker.until(lambda: worker.states("in") == ["RUNNING", "RUNNING"], "the connector and its task run")
    assert committed_lines(worker.servers, "lines", 1000, 60) == [str(number) for number in range(1000)]
