"""Connectors that `ottla connect run` runs, as the console shows them: state, rates, errors, stop and start."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.cli.connectors.status import ends
from ottla.pipelines import supervisor
from ottla.testing import Broker
from tests.console.scene import Pipelines
from tests.console.site import ServedConsole

OTTLA = [sys.executable, "-m", "ottla.cli.main"]


def wait(true: Callable[[], object], told: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


@contextmanager
def running(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output, subprocess.Popen([*OTTLA, *words], stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.timeout(180)
def test_two_connectors_of_one_process(tmp_path: Path) -> None:
    lines, log = tmp_path / "lines.txt", tmp_path / "connect.log"
    lines.write_text("".join(f"line {n}\n" for n in range(30)))
    source, sink = tmp_path / "source.json", tmp_path / "sink.json"
    source.write_text(
        json.dumps({"name": "from-file", "connector.class": "file-source", "file": str(lines), "topic": "lines"})
    )
    values = {"key.converter": "string", "value.converter": "string", "transforms": "hoist"}
    hoist = {"transforms.hoist.type": "HoistField$Value", "transforms.hoist.field": "line"}
    where = {"connector.class": "parquet-sink", "path": str(tmp_path / "table"), "topics": "lines"}
    sink.write_text(json.dumps({"name": "to-table", **where, **values, **hoist}))
    with Broker() as broker, Pipelines(tmp_path) as pipelines:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("lines", 1, 1)])["lines"].result(30)
        words = ["connect", "run", str(source), str(sink), "-b", broker.bootstrap_servers, "--state", pipelines.state]

        def state(name: str) -> dict[str, object]:
            return supervisor.current(pipelines.state, name)

        def told() -> object:
            return state("from-file"), state("to-table"), log.read_text()[-2000:]

        served = ServedConsole(bootstrap_servers=broker.bootstrap_servers, pipelines_url=pipelines.url)
        with running(*words, log=log) as process, served as console:
            wait(lambda: state("from-file").get("rows") == 30 and state("to-table").get("rows") == 30, told)
            wait(lambda: state("to-table").get("lag") == 0, told)
            page = console.get("/pipelines").text
            assert "from-file" in page
            assert "parquet-sink" in page
            assert "revenue" in page, "pipelines are still there"
            one = console.get("/pipelines/to-table").text
            assert "What feeds what" in one
            assert 'href="/topics/lines"' in one
            assert "connector to-table" in console.get("/lineage").text

            assert console.post("/pipelines/to-table/stop").status_code == 200
            wait(lambda: state("to-table")["state"] == "stopped", told)
            assert state("from-file")["state"] == "running", "the other one of that process goes on"
            with lines.open("a") as file:
                file.write("one more\n")
            wait(lambda: state("from-file").get("rows") == 31, told)

            assert console.post("/pipelines/to-table/start").status_code == 200
            wait(lambda: state("to-table").get("rows") in (1, 31) and state("to-table")["state"] == "running", told)
            assert state("to-table")["pid"] != process.pid
            assert console.post("/pipelines/to-table/stop").status_code == 200
            wait(lambda: state("to-table")["state"] == "stopped", told)


def test_a_connector_that_fails_says_why(tmp_path: Path) -> None:
    config, log = tmp_path / "bad.json", tmp_path / "connect.log"
    (tmp_path / "x").write_text("a line\n")
    bad = {"name": "bad", "connector.class": "file-source", "file": str(tmp_path / "x"), "topic": "no/such"}
    config.write_text(json.dumps(bad))
    with Broker() as broker, Pipelines(tmp_path) as pipelines:
        words = ["connect", "run", str(config), "-b", broker.bootstrap_servers, "--once", "--state", pipelines.state]
        with running(*words, log=log) as process:
            assert process.wait(60) == 1, log.read_text()
        with ServedConsole(bootstrap_servers=broker.bootstrap_servers, pipelines_url=pipelines.url) as console:
            assert supervisor.current(pipelines.state, "bad")["state"] == "failed"
            error = str(supervisor.current(pipelines.state, "bad")["error"])
            assert error
            assert error[:20] in console.get("/pipelines").text


def test_what_a_connector_reads_and_writes_holds_no_secret() -> None:
    secret = {"connection.url": "postgresql://me:geheim@db/shop"}
    assert ends({"connector.class": "sql-sink", "topics": "a, b", **secret}) == (
        ["topic:a", "topic:b"],
        ["sql:sql-sink"],
    )
    assert ends({"connector.class": "sql-source", "topic.prefix": "shop.", **secret}) == (
        ["sql:sql-source"],
        ["topic:shop."],
    )
    assert ends({"connector.class": "delta-sink", "topics.regex": "a.*"}) == (
        ["topics like:a.*"],
        ["connector:delta-sink"],
    )
