"""Audit events of the HTTP servers, and the audit log to files, syslog and topics."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from ottla.cli.commands import ottla
from ottla.client.audit.events import MAX_RESOURCES, is_worth_noting, request_event
from ottla.client.audit.sinks import TOPIC, AuditDestinationError, FileSink, open_sink
from ottla.client.audit.syslog import SyslogSink
from ottla.client.audit.trail import AuditTrail
from ottla.model.peer_text import MAX_TEXT
from ottla.security.web import hash_password
from ottla.testing import Broker
from tests.console.site import ServedConsole
from tests.registry.instances import RegistryThread, call, until
from tests.support.debian import debian_command
from tests.support.kafka_jars import Unavailable
from tests.support.ports import free_port

EVENT = {"timestamp_ms": 1_700_000_000_123, "event": "login", "principal": "User:ann\n<1>", "allowed": False}
RFC_5424 = re.compile(rb"<(\d+)>1 (\S+) (\S+) (\S+) (\d+) (\S+) - (\{.*\})", re.DOTALL)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def basic(login: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


# What is recorded


def scope(method: str = "POST", path: str = "/x", **more: Any) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": [], "client": ("10.0.0.1", 5), **more}


def test_changes_and_refusals_are_worth_noting() -> None:
    shown = [(b"authorization", b"Basic x")]
    assert is_worth_noting(scope("POST"), 200)
    assert is_worth_noting(scope("DELETE"), 404)
    assert not is_worth_noting(scope("GET"), 200)
    assert not is_worth_noting(scope("GET"), 401)
    assert is_worth_noting(scope("GET", headers=shown), 401)
    for status in (403, 421, 429):
        assert is_worth_noting(scope("GET"), status)


def test_an_event_is_small_whatever_a_peer_sends_and_holds_no_password() -> None:
    login = base64.b64encode(b"n" * 100_000 + b":s3cret").decode().encode()
    whole = scope("P" * 9999, "/" + "p" * 100_000, headers=[(b"authorization", b"Basic " + login)])
    event = request_event("registry", {**whole, "path_params": {str(n): "v" * 9999 for n in range(500)}}, 401)
    assert len(json.dumps(event)) < (MAX_RESOURCES + 4) * (MAX_TEXT + 40)
    assert "s3cret" not in json.dumps(event)
    assert event["principal"].startswith("User:nnn")
    assert (event["allowed"], event["status"], event["host"]) == (False, 401, "10.0.0.1")
    odd = scope(headers=[(b"authorization", b"Basic \xe9")])
    assert request_event("registry", odd, 401)["principal"] == "User:ANONYMOUS"


@pytest.mark.timeout(180)
def test_the_registry_and_the_console_write_to_the_topic_and_to_a_file(broker: Broker, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:admin:{hash_password('p')}\nbob:read:{hash_password('p')}\n")
    file = tmp_path / "audit.log"
    audit = {"users_file": str(users), "audit": (f"file:{file}", "topic")}
    with RegistryThread(broker.bootstrap_servers, topic="_schemas_audit", **audit) as registry:
        body = {"schema": '"int"'}
        assert call(registry.url, "POST", "/subjects/orders/versions", body, headers=basic("ann:p"))[0] == 200
        assert call(registry.url, "POST", "/subjects/orders/versions", body, headers=basic("bob:p"))[0] == 403
        assert call(registry.url, "GET", "/subjects", headers=basic("eve:s3cret"))[0] == 401
        assert call(registry.url, "GET", "/subjects", headers=basic("bob:p"))[0] == 200
        assert call(registry.url, "GET", "/subjects", headers={"Host": "rebound.example"})[0] == 421
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers, **audit) as console:
        assert console.http.post("/login", data={"name": "ann", "password": "s3cret"}).status_code == 401
        assert console.http.post("/login", data={"name": "ann", "password": "p"}).status_code in (200, 303)
        assert console.post("/topics", name="made-here", partitions="1").status_code in (200, 303)
        console.get("/topics/made-here/messages")
    found = [(e["surface"], e["principal"], e["action"], e["resources"], e["status"]) for e in lines(file)]
    assert found[:4] == [
        ("registry", "User:ann", "register", ["orders"], 200),
        ("registry", "User:bob", "register", ["orders"], 403),
        ("registry", "User:eve", "GET", ["/subjects"], 401),
        ("registry", "User:ANONYMOUS", "GET", ["/subjects"], 421),
    ]
    assert found[4][:3] == ("console", "User:ann", "login.login")
    assert found[4][4] == 401
    assert [one[2] for one in found[4:]] == ["login.login", "login.login", "topics.create", "messages.show"]
    assert all(one[1] == "User:ann" for one in found[4:])
    assert [e["event"] for e in lines(file)].count("login") == 2
    assert "s3cret" not in file.read_text()
    assert all(e["host"] == "127.0.0.1" for e in lines(file))
    assert file.stat().st_mode & 0o077 == 0
    assert read_topic(broker, TOPIC, len(found)) == lines(file)


def read_topic(broker: Broker, topic: str, count: int) -> list[dict[str, Any]]:
    reader = Consumer({
        "bootstrap.servers": broker.bootstrap_servers, "group.id": f"read-{topic}", "auto.offset.reset": "earliest",
    })  # fmt: skip
    reader.subscribe([topic])
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [json.loads(m.value() or b"") for m in reader.consume(100, 0.5) if m.error() is None]
    reader.close()
    return found


# The queue


class Gate:
    """A destination that takes nothing until it is opened."""

    name = "gate:"

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.written: list[dict[str, Any]] = []
        self.tries = 0

    def write(self, events: Sequence[dict[str, Any]]) -> None:
        self.tries += 1
        if not self.is_open.is_set():
            raise OSError("away")
        self.written += events

    def close(self) -> None:
        pass


def test_what_does_not_fit_is_counted_and_nothing_waits(tmp_path: Path) -> None:
    gate, beside = Gate(), FileSink(str(tmp_path / "beside"))
    trail = AuditTrail("x", [gate, beside], max_events=5)
    for number in range(20):
        trail.record({"timestamp_ms": 0, "event": "request", "number": number})
        until(lambda: lines(tmp_path / "beside") and lines(tmp_path / "beside")[-1]["number"] == number, 60)  # noqa: B023 - looked at before the next
    gate.is_open.set()
    until(lambda: len(gate.written) == 6, 60)
    trail.close()
    assert [event.get("number") for event in gate.written] == [0, 1, 2, 3, 4, None]
    assert gate.written[-1] == {**gate.written[-1], "event": "dropped", "count": 15}
    assert [event["number"] for event in lines(tmp_path / "beside")] == list(range(20))


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "log"))
    sink.write([EVENT])
    (tmp_path / "log").rename(tmp_path / "log.1")
    sink.write([EVENT, EVENT])
    sink.close()
    assert (len(lines(tmp_path / "log.1")), len(lines(tmp_path / "log"))) == (1, 2)


def test_a_folder_that_is_away_costs_nobody_a_descriptor(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    sink = FileSink(str(folder / "log"))
    sink.write([EVENT])
    folder.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            sink.write([EVENT])
        other = os.open(tmp_path, os.O_RDONLY)  # it must not have the number of the sink's file
        with pytest.raises(FileNotFoundError):
            sink.write([EVENT])
        os.close(other)
    folder.mkdir()
    sink.write([EVENT])
    sink.close()
    assert (len(lines(tmp_path / "away" / "log")), len(lines(folder / "log"))) == (1, 1)


@pytest.mark.timeout(120)
def test_a_topic_that_was_deleted_is_made_again_and_an_event_too_large_keeps_nothing_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.client.audit.sinks._WRITE_S", 1.0)
    with Broker(properties={"auto.create.topics.enable": "false", "message.max.bytes": "20000"}) as own:
        sink = open_sink("topic:watch", "ottla-test", {"bootstrap.servers": own.bootstrap_servers})
        large = {**EVENT, "text": "x" * 30_000}
        sink.write([{**EVENT, "number": 1}, large, {**EVENT, "number": 2}, *[{**EVENT, "text": "x" * 5_000}] * 8])
        found = read_topic(own, "watch", 10)
        assert [event["number"] for event in found if "number" in event] == [1, 2]
        gone = CliRunner().invoke(ottla, ["topic", "delete", "watch", "--yes", "-b", own.bootstrap_servers])
        assert gone.exit_code == 0, gone.output
        deadline = time.monotonic() + 60
        while True:
            try:
                sink.write([{**EVENT, "number": 3}])
                break
            except OSError:
                assert time.monotonic() < deadline
        assert 3 in [event["number"] for event in read_topic(own, "watch", 1)]
        sink.close()


@pytest.mark.parametrize(
    "destination",
    ["", "x", "file:", "syslog+tcp://host", "syslog+udp://:514", "syslog+unix:", "topic", "file:/no/where/x"],
)
def test_what_is_no_destination_is_named(destination: str) -> None:
    with pytest.raises(AuditDestinationError):
        open_sink(destination, "ottla-x")


def test_a_server_with_a_bad_destination_does_not_start(broker: Broker) -> None:
    from ottla.registry.settings import RegistryStartError

    with (
        pytest.raises(RegistryStartError, match="not a destination"),
        RegistryThread(broker.bootstrap_servers, topic="_schemas_audit2", audit=("somewhere",)),
    ):
        pass


# Syslog


def checked(message: bytes) -> dict[str, Any]:
    found = RFC_5424.fullmatch(message)
    assert found is not None, message
    assert found[1] == b"84"  # authpriv, warning
    assert (found[2], found[4], found[6]) == (b"2023-11-14T22:13:20.123Z", b"ottla-test", b"login")
    assert b"\n" not in message
    return dict(json.loads(found[7]))


def test_syslog_over_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
        sink = open_sink(f"syslog+udp://127.0.0.1:{receiver.getsockname()[1]}", "ottla-test")
        sink.write([EVENT, EVENT])
        assert [checked(receiver.recv(65_536)) for _ in range(2)] == [EVENT, EVENT]
        sink.close()


@pytest.mark.parametrize(
    "more", [{"resources": ["\U0001f600" * 300] * 40}, {"timestamp_ms": "soon"}, {"timestamp_ms": 1e99}]
)
def test_no_event_stops_the_ones_behind_it(more: dict[str, Any]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
        sink = open_sink(f"syslog+udp://127.0.0.1:{receiver.getsockname()[1]}", "ottla-test")
        sink.write([{**EVENT, **more}, EVENT])
        assert receiver.recv(65_536).startswith(b"<84>1 ")
        assert checked(receiver.recv(65_536)) == EVENT
        sink.close()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_syslog_over_a_unix_socket(tmp_path: Path, kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of such a socket is short
    with socket.socket(socket.AF_UNIX, kind) as receiver:
        receiver.bind("log")
        receiver.settimeout(60)
        if kind == socket.SOCK_STREAM:
            receiver.listen()
        sink = open_sink("syslog+unix:log", "ottla-test")
        sink.write([EVENT])
        if kind == socket.SOCK_DGRAM:
            assert checked(receiver.recv(65_536)) == EVENT
        else:
            peer, _ = receiver.accept()
            size, _, message = peer.recv(65_536).partition(b" ")
            assert (int(size), checked(message)) == (len(message), EVENT)
            peer.close()
        sink.close()


def test_syslog_over_tcp_is_connected_anew_when_the_receiver_comes_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        sink = SyslogSink("tcp", f"127.0.0.1:{listener.getsockname()[1]}", "ottla-test")
        for _ in range(2):
            sink.write([EVENT])
            peer, _ = listener.accept()
            size, _, message = peer.recv(65_536).partition(b" ")
            assert (int(size), checked(message)) == (len(message), EVENT)
            peer.close()  # the next event goes by a new connection: none is written to one that has ended
        sink.close()
    with pytest.raises(OSError, match="refused"):
        sink.write([EVENT])


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_a_real_syslog_server_has_them(tmp_path: Path) -> None:
    try:
        command = debian_command("rsyslogd", "rsyslog")
    except Unavailable as reason:
        pytest.skip(str(reason))
    port, out = free_port(), tmp_path / "out.log"
    where = f'address="127.0.0.1" port="{port}"'
    (tmp_path / "rsyslog.conf").write_text(
        f'global(workDirectory="{tmp_path}")\nmodule(load="imtcp")\nmodule(load="imudp")\n'
        f'input(type="imtcp" {where})\ninput(type="imudp" {where})\n'
        'template(name="parts" type="string" string="%pri%|%app-name%|%msgid%|%protocol-version%|%msg%\\n")\n'
        f'*.* action(type="omfile" file="{out}" template="parts")\n'
    )
    server = subprocess.Popen([command, "-n", "-f", str(tmp_path / "rsyslog.conf"), "-i", str(tmp_path / "pid")])
    try:
        _until_listening(port)
        for kind in ("tcp", "udp"):
            sink = SyslogSink(kind, f"127.0.0.1:{port}", "ottla-test")
            sink.write([EVENT])
            sink.close()
        until(lambda: out.exists() and len(out.read_text().splitlines()) >= 2, 60)
        for line in out.read_text().splitlines()[:2]:
            pri, app, message_id, version, text = line.split("|", 4)
            assert (pri, app, message_id, version) == ("84", "ottla-test", "login", "1")
            assert json.loads(text) == EVENT
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def _until_listening(port: int) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    until(answers, 60)


# ottla audit export


@pytest.mark.timeout(180)
def test_the_log_of_a_broker_is_exported_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with Broker(properties={"ottla.audit.enable": "true"}) as broker:
        made = CliRunner().invoke(ottla, ["topic", "create", "watched", "-b", broker.bootstrap_servers])
        assert made.exit_code == 0, made.output
        file = tmp_path / "audit.log"

        def export(*more: str) -> str:
            words = ["audit", "export", "--once", "-b", broker.bootstrap_servers, "--to", f"file:{file}", *more]
            done = _in_main_thread(words)
            assert done.returncode == 0, done.stderr
            return done.stdout

        until(lambda: "CreateTopics" in (export() and file.read_text()), 60)
        before = lines(file)
        assert any(e.get("api") == "CreateTopics" and "watched" in e["resources"] for e in before)
        made = CliRunner().invoke(ottla, ["topic", "delete", "watched", "--yes", "-b", broker.bootstrap_servers])
        assert made.exit_code == 0, made.output
        until(lambda: "DeleteTopics" in (export("--to", "topic:siem") and file.read_text()), 60)
        added = lines(file)[len(before) :]
        assert [e for e in added if e.get("api") == "DeleteTopics"]
        copied = read_topic(broker, "siem", 1)
        assert copied
        assert all(event in added for event in copied)
        looped = CliRunner().invoke(ottla, ["audit", "export", "--to", "topic", "-b", broker.bootstrap_servers])
        assert looped.exit_code == 2


def _in_main_thread(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Signals are its own."""
    from ottla.system.processes import own_command

    return subprocess.run(own_command(*words), capture_output=True, text=True, check=False, timeout=120, env=os.environ)
