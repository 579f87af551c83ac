"""Several connectors in one process: one that fails is told, tried again and in the end left; the others go on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset
import pytest

from ottla.cli.connectors import runs as connector_runs
from ottla.cli.connectors.runs import ConnectorRun, Outage
from ottla.env.restarts import MAX_RESTARTS
from ottla.model.user_error import UserError
from ottla.pipelines import supervisor
from ottla.tables.query import topic_table
from ottla.testing import Broker
from tests.interop.ottla_server import OttlaServer

pytestmark = pytest.mark.timeout(180)
FRAGILE = """
import os
from ottla.connect.connector import Change, Source

class Fragile(Source):
    def poll(self, after):
        if os.path.exists(self.config["broken"]):
            raise ValueError("it is broken")
        start = int((after or {}).get("n", 0))
        return [Change(topic="fragile", value={"n": n}, place={"n": n + 1}) for n in range(start, min(start + 5, 20))]
"""


def wait(true: Callable[[], object], told: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


class Running:
    """`ottla connect run` with a file as source and what else is given."""

    def __init__(self, folder: Path, servers: str, *more: dict[str, str]) -> None:
        self.lines, self.log, self.state = folder / "lines.txt", folder / "connect.log", str(folder / "state")
        self.lines.write_text("one\ntwo\n")
        first = {"name": "lines", "connector.class": "file-source", "file": str(self.lines), "topic": "lines",
                 "value.converter": "string"}  # fmt: skip
        files = []
        for config in (first, *more):
            files.append(folder / f"{config['name']}.json")
            files[-1].write_text(json.dumps(config))
        self._command = [
            sys.executable, "-m", "ottla.cli.main", "connect", "run", *map(str, files), "-b", servers, "--state", self.state,
        ]  # fmt: skip

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        with self.log.open("ab") as output, subprocess.Popen(self._command, stdout=output, stderr=output) as process:
            try:
                yield process
            finally:
                process.kill()

    def status(self, name: str) -> dict[str, object]:
        Path(self.state).mkdir(exist_ok=True)
        return supervisor.current(self.state, name)

    def told(self) -> list[str]:
        return self.log.read_text().splitlines()

    def facts(self) -> object:
        return self.status("lines"), self.status("fragile"), self.told()[-20:]

    def add(self, line: str) -> None:
        with self.lines.open("a") as file:
            file.write(f"{line}\n")


def test_one_that_fails_is_started_again_and_the_others_go_on(tmp_path, monkeypatch):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    broken = tmp_path / "broken"
    broken.touch()
    fragile = {"name": "fragile", "connector.class": "fragile:Fragile", "broken": str(broken)}
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        running = Running(tmp_path, broker.bootstrap_servers, fragile)
        with running.started() as process:
            wait(lambda: running.status("fragile")["state"] == "restarting", running.facts)
            assert running.status("fragile")["error"] == "it is broken"
            running.add("three")
            wait(lambda: running.status("lines").get("rows") == 3, running.facts)
            assert running.status("lines")["state"] == "running"
            with pytest.raises(UserError, match="already running"):
                supervisor.start(running.state, "fragile", [], ("connect", "run"))
            broken.unlink()
            wait(lambda: running.status("fragile").get("rows") == 20, running.facts)
            wait(lambda: running.status("fragile")["state"] == "running", running.facts)
            assert running.status("fragile")["error"] == ""
            process.terminate()
            assert process.wait(60) == 0, running.told()
        assert running.told() == [
            "ottla: fragile: it is broken; restarting in 1 s", "lines: 3 records", "fragile: 20 records",
        ]  # fmt: skip
        rows = topic_table({"bootstrap.servers": broker.bootstrap_servers}, "fragile").to_pylist()
        assert [json.loads(row["value"])["n"] for row in rows] == list(range(20))


def test_one_that_fails_does_not_end_the_others_of_a_run_that_ends(tmp_path, monkeypatch):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    fragile = {"name": "fragile", "connector.class": "fragile:Fragile", "broken": str(tmp_path)}
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        running = Running(tmp_path, broker.bootstrap_servers, fragile)
        running._command.append("--once")
        with running.started() as process:
            assert process.wait(90) == 1
        assert running.status("fragile")["state"] == "failed"
        assert sorted(running.told()) == ["lines: 2 records", "ottla: fragile: it is broken"]


def test_brokers_that_go_away_are_one_line_and_one_more_when_they_are_back(tmp_path):
    server = OttlaServer(tmp_path / "server", properties={"auto.create.topics.enable": "true"})
    server.start()
    try:
        sink = {"name": "fragile", "connector.class": "parquet-sink", "path": str(tmp_path / "table"), "topics": "lines",
                "key.converter": "string", "value.converter": "string", "transforms": "hoist",
                "transforms.hoist.type": "HoistField$Value", "transforms.hoist.field": "line"}  # fmt: skip
        running = Running(tmp_path, server.bootstrap_servers, sink)

        def table() -> list[str]:
            if not (tmp_path / "table").exists():
                return []
            found = pyarrow.dataset.dataset(str(tmp_path / "table"), format="parquet").to_table()
            return sorted(found.column("line").to_pylist()) if found.num_columns else []

        with running.started() as process:
            wait(lambda: table() == ["one", "two"], running.facts)
            before = len(running.told())  # the sink may have had to wait for its topic
            server.kill()
            wait(lambda: len(running.told()) > before, running.facts)
            running.add("while it was away")
            away_since = time.monotonic()
            wait(lambda: time.monotonic() - away_since > 5, running.facts)  # five attempts of each client to connect
            server.start()
            wait(lambda: table() == ["one", "two", "while it was away"], running.facts)
            wait(lambda: running.status("fragile")["state"] == "running", running.facts)
            process.terminate()
            assert process.wait(60) == 0, running.told()
        lines = running.told()[before:]
        assert len(lines) == 4, lines
        assert lines[0].endswith(": the connectors wait until a broker answers")
        assert lines[1] == f"ottla: {server.bootstrap_servers} answers again: the connectors continue"
    finally:
        server.stop()


class Told:
    """What a connector says of itself."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def progress(self, _rows: int, _lag: int | None) -> None:
        self.states.append("running")

    def restarting(self, _error: str) -> None:
        self.states.append("restarting")

    def end(self, state: str, _error: str = "") -> None:
        self.states.append(state)

    def asked_to_stop(self) -> bool:
        return False


def test_what_fails_after_an_outage_failed_by_it(monkeypatch, capsys):
    """A client gives up later than its brokers went away, perhaps when they are back."""
    refused: list[str] = []
    stopping = threading.Event()
    outage = Outage("127.0.0.1:9", stopping)
    attempts: list[int] = []

    def attempt(_config, _client, **_):
        attempts.append(len(attempts))
        if attempts[-1] == 1:
            stopping.set()
            return 0
        refused.append("nobody listens")
        assert outage.is_now()
        refused.clear()
        assert not outage.is_now()
        raise UserError("it took too long")

    monkeypatch.setattr(connector_runs, "run_connector", attempt)
    monkeypatch.setattr(connector_runs, "refusals", lambda _servers: list(refused))
    monkeypatch.setattr(connector_runs.time, "sleep", lambda _seconds: None)
    ConnectorRun({"name": "c"}, {}, Told(), stopping.is_set).until_stopped(outage)
    assert len(attempts) == 2
    assert capsys.readouterr().err.splitlines() == [
        "ottla: nobody listens: the connectors wait until a broker answers",
        "ottla: 127.0.0.1:9 answers again: the connectors continue",
    ]


@pytest.mark.parametrize(
    ("moved", "away", "restarts"), [((), (), 5), ((3,), (), 8), ((3, 5), (), 10), ((), (4, 5), 10)]
)
def test_it_stays_failed_after_so_many_failures_in_a_row(monkeypatch, capsys, moved, away, restarts):
    """Attempts that moved a record, or that failed while nobody listened, begin the count again."""
    attempts: list[int] = []
    now = [0.0]

    def attempt(_config, _client, *, progress, **_):
        attempts.append(len(attempts))
        progress(1 if attempts[-1] in moved else 0, None)
        raise UserError("it cannot be")

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(connector_runs, "run_connector", attempt)
    monkeypatch.setattr(connector_runs.time, "sleep", sleep)
    monkeypatch.setattr(connector_runs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Outage, "is_now", lambda _self: bool(attempts) and attempts[-1] in away)
    told = Told()
    run = ConnectorRun({"name": "c"}, {}, told, threading.Event().is_set)
    run.until_stopped(Outage("127.0.0.1:9", threading.Event()))
    assert len(attempts) == restarts + 1
    assert told.states[-2:] == ["running", "failed"]
    assert told.states.count("restarting") == restarts
    assert run.error == f"it cannot be (after {MAX_RESTARTS} restarts)"
    assert capsys.readouterr().err.splitlines() == [
        "ottla: c: it cannot be; restarting in 1 s", f"ottla: c: it cannot be (after {MAX_RESTARTS} restarts)",
    ]  # fmt: skip
