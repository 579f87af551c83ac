"""What keeps a node from starting: one clear line, exit code not 0, nothing touched on disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from ottla.env.config.load import load
from ottla.server.errors import StartupError
from ottla.server.formatting.storage import format_standalone
from ottla.server.node import Node
from tests.robustness.server_process import (
    CLUSTER_ID,
    COMMAND,
    ServerProcess,
    environment,
    node_properties,
    ottla,
    write_properties,
)
from tests.support.ports import free_ports


def snapshot(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a folder: mode, time of change, content. `.lock` is opened by who looks whether it is held."""
    return {
        str(path.relative_to(directory)): (
            path.lstat().st_mode,
            0 if path.is_dir() else path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(directory.rglob("*"))
        if path.name != ".lock"
    }


NO_CHECKPOINTS = {
    f"{name}.checkpoint.interval.ms": "600000"
    for name in ("replica.high.watermark", "log.flush.offset", "log.flush.start.offset")
}
"""For a server that runs beside a start that must change nothing: its own files stand still as well."""


@pytest.fixture
def refused(tmp_path):
    """Start on a file; the start must fail in one line and leave everything as it was."""

    def start(file: Path, *arguments: str) -> str:
        before = snapshot(tmp_path)
        done = ottla("server", "start", file, *arguments)
        assert done.returncode not in (0, None), done.stderr
        assert done.returncode > 0, f"ended by a signal: {done.returncode}"
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("ottla: ")
        assert snapshot(tmp_path) == before
        return lines[0]

    return start


def properties_of(directory: Path, *log_dirs: str, **changes: str | None) -> Path:
    port, controller_port = free_ports(2)
    properties = node_properties([directory / name for name in log_dirs or ("data",)], port, controller_port)
    for name, value in changes.items():
        properties.pop(name.replace("_", "."), None)
        if value is not None:
            properties[name.replace("_", ".")] = value
    return write_properties(directory / "server.properties", properties)


def formatted(file: Path, cluster_id: str = CLUSTER_ID) -> Path:
    done = ottla("storage", "format", "-t", cluster_id, "-c", file, "--standalone")
    assert done.returncode == 0, done.stderr
    return file


def test_missing_file(tmp_path, refused):
    assert refused(tmp_path / "nowhere.properties").endswith("nowhere.properties: No such file or directory")


def test_a_file_that_is_no_text(tmp_path, refused):
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refused(file)


def test_a_folder_instead_of_a_file(tmp_path, refused):
    assert "Is a directory" in refused(tmp_path)


def test_a_file_that_may_not_be_read(tmp_path, refused):
    file = properties_of(tmp_path)
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("root reads everything")
    assert "Permission denied" in refused(file)


@pytest.mark.parametrize("with_data", [False, True])
def test_unformatted(tmp_path, refused, with_data):
    if with_data:
        (tmp_path / "data/t-0").mkdir(parents=True)
    line = refused(properties_of(tmp_path))
    assert str(tmp_path / "data") in line
    assert "ottla storage format" in line


def test_a_port_in_use(tmp_path, refused):
    file = formatted(properties_of(tmp_path))
    port = int(file.read_text().split("PLAINTEXT://127.0.0.1:")[1].split(",")[0])
    with socket.create_server(("127.0.0.1", port)):
        line = refused(file)
    assert f"PLAINTEXT://127.0.0.1:{port}" in line
    assert "in use" in line


def test_the_controllers_port_in_use(tmp_path, refused):
    file = formatted(properties_of(tmp_path))
    port = int(file.read_text().split("CONTROLLER://127.0.0.1:")[1].split("\n")[0])
    with socket.create_server(("127.0.0.1", port)):
        assert f"CONTROLLER://127.0.0.1:{port}" in refused(file)


def test_another_cluster_in_one_directory(tmp_path, refused):
    formatted(properties_of(tmp_path, "a"))
    formatted(properties_of(tmp_path, "b"), "YW5vdGhlci1jbHVzdGVyLQ")
    line = refused(properties_of(tmp_path, "a", "b"))
    assert "YW5vdGhlci1jbHVzdGVyLQ" in line
    assert CLUSTER_ID in line


def test_another_nodes_directory(tmp_path, refused):
    formatted(properties_of(tmp_path))
    line = refused(properties_of(tmp_path, node_id="7"))
    assert "node id 1" in line
    assert "node id 7" in line
    assert str(tmp_path / "data") in line


def test_one_directory_unformatted(tmp_path, refused):
    formatted(properties_of(tmp_path, "a"))
    (tmp_path / "b").mkdir()
    assert str(tmp_path / "b") in refused(properties_of(tmp_path, "a", "b"))


def test_damaged_meta_properties(tmp_path, refused):
    file = formatted(properties_of(tmp_path))
    (tmp_path / "data/meta.properties").write_text("version=7\nnode.id=1\n")
    assert "meta.properties" in refused(file)


def test_a_second_server_on_the_same_directory(tmp_path, refused):
    with ServerProcess(tmp_path / "first", properties=NO_CHECKPOINTS) as first:
        # Its last line: from there on no file changes by itself.
        while "node.started" not in first.log_file.read_text():
            time.sleep(0.01)
        (tmp_path / "second").mkdir()
        port, controller_port = free_ports(4)[2:]
        properties = node_properties(first.log_dirs, port, controller_port)
        file = write_properties(tmp_path / "second/server.properties", properties)
        line = refused(file)
        assert str(first.log_dirs[0]) in line
        assert "another" in line.lower() or "lock" in line.lower()
        assert first._answers(10)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_segment_bytes": "many"}, ["log.segment.bytes", "many"]),
        ({"log_segment_bytes": "12"}, ["log.segment.bytes", "12"]),
        ({"log_cleanup_policy": "shred"}, ["log.cleanup.policy", "shred"]),
        ({"listeners": "PLAINTEXT:/oops"}, ["listeners", "PLAINTEXT:/oops"]),
        ({"listeners": "WEIRD://127.0.0.1:1,CONTROLLER://127.0.0.1:2"}, ["WEIRD"]),
        ({"process_roles": None}, ["process.roles"]),
        ({"process_roles": "broker,chef"}, ["process.roles", "chef"]),
        ({"node_id": None}, ["node.id"]),
        ({"log_dirs": ""}, ["log.dir"]),
        ({"controller_listener_names": None}, ["controller.listener.names"]),
    ],
    ids=lambda value: next(iter(value)) + "=" + str(next(iter(value.values()))) if isinstance(value, dict) else "",
)
def test_properties_that_are_refused(tmp_path, refused, changes, words):
    line = refused(properties_of(tmp_path, **changes))
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_retention_houres": "5"}, ["log.retention.houres", "log.retention.hours"]),
        ({"segment_bytes": "5"}, ["segment.bytes"]),
    ],
)
def test_names_that_strict_refuses(tmp_path, refused, changes, words):
    line = refused(properties_of(tmp_path, **changes), "--strict")
    for word in words:
        assert word in line


def test_every_problem_has_its_line(tmp_path):
    file = properties_of(tmp_path, log_segment_bytes="many", log_retention_houres="5")
    done = ottla("server", "start", file, "--strict")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2
    assert not (tmp_path / "data").exists()


def test_an_override_that_is_none(tmp_path, refused):
    assert "NAME=VALUE" in refused(formatted(properties_of(tmp_path)), "--override", "nonsense")


def test_a_directory_that_is_a_file(tmp_path, refused):
    file = formatted(properties_of(tmp_path, "a"))
    (tmp_path / "b").write_text("not a folder")
    file = properties_of(tmp_path, "a", "b")
    assert str(tmp_path / "b") in refused(file)


def test_the_only_directory_is_a_file(tmp_path, refused):
    (tmp_path / "data").write_text("not a folder")
    assert str(tmp_path / "data") in refused(properties_of(tmp_path))


def test_a_security_protocol_that_is_not_there_yet(tmp_path, refused):
    port, controller_port = free_ports(2)
    file = properties_of(tmp_path, listeners=f"SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}")
    assert "SSL" in refused(file)


@contextlib.contextmanager
def read_only(directory: Path):
    """A bind mount that refuses every write, also of root."""
    done = subprocess.run(["mount", "--bind", directory, directory], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", directory], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


def test_a_read_only_directory(tmp_path, refused):
    file = formatted(properties_of(tmp_path))
    with read_only(tmp_path / "data"):
        line = refused(file)
    assert str(tmp_path / "data") in line
    assert "Read-only" in line


def test_a_metadata_directory_of_its_own_is_locked_too(tmp_path, refused):
    with ServerProcess(
        tmp_path / "first", properties={"metadata.log.dir": str(tmp_path / "metadata"), **NO_CHECKPOINTS}
    ) as first:
        other = tmp_path / "other"
        other.mkdir()
        port, controller_port = free_ports(4)[2:]
        properties = node_properties([tmp_path / "other/data"], port, controller_port)
        file = write_properties(
            other / "server.properties", {**properties, "metadata.log.dir": str(tmp_path / "unused")}
        )
        formatted(file)
        write_properties(file, {**properties, "metadata.log.dir": first.properties["metadata.log.dir"]})
        line = refused(file)
        assert str(tmp_path / "metadata") in line
        assert "another server" in line


def test_format_refuses_what_is_formatted(tmp_path):
    file = formatted(properties_of(tmp_path))
    before = snapshot(tmp_path)
    done = ottla("storage", "format", "-t", CLUSTER_ID, "-c", file, "--standalone")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "already formatted" in done.stderr
    assert snapshot(tmp_path) == before


KAFKAS_OWN = """\
# as Kafka 4.x ships it
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={directory}/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_kafkas_own_file_starts_unchanged(tmp_path):
    server = ServerProcess(tmp_path)
    server.file.write_text(
        KAFKAS_OWN.format(port=server.port, controller_port=server.controller_port, directory=tmp_path)
    )
    formatted(server.file)
    server.start()
    try:
        assert server.stop()[0] == 0
    finally:
        if server.process.poll() is None:
            server.kill()
    (note,) = [line for line in server.log_text().splitlines() if "settings.accepted" in line]
    assert "num.network.threads" in note
    assert "num.io.threads" in note
    assert "log.retention.hours" not in note
    assert "warning" not in server.log_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_clean_and_quick_shutdown(tmp_path, number):
    with ServerProcess(tmp_path) as server:
        marker = tmp_path / "data/.kafka_cleanshutdown"
        assert not marker.exists()
        code, seconds = server.stop(number)
        assert code == 0
        assert seconds < 10, "quick"
        assert marker.exists()
        server.assert_no_traceback()
        server.start()
        assert not marker.exists()


def test_a_second_signal_ends_at_once(tmp_path):
    with ServerProcess(tmp_path) as server:
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(30)
        server.assert_no_traceback()


def test_a_signal_during_the_start(tmp_path):
    server = ServerProcess(tmp_path).format()
    for delay in (0.0, 0.1, 0.2, 0.3):
        process = server.launch()
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    server.assert_no_traceback()
    server.start()
    assert server.stop()[0] == 0


def test_up_makes_finds_and_stops(tmp_path):
    port = free_ports(2)[0]
    for attempt in range(2):
        log_file = tmp_path / f"{attempt}.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [*COMMAND, "up", "--dir", str(tmp_path / "here"), "--port", str(port), "--no-registry", "--no-console"],
                env=environment(), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while "is up at" not in log_file.read_text():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert "Traceback" not in log_file.read_text()


def test_up_on_a_port_in_use_makes_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ottla("up", "--dir", tmp_path / "here", "--port", port, "--no-registry", "--no-console")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert not (tmp_path / "here").exists()


def test_up_listens_where_its_file_says_or_not_at_all(tmp_path):
    """A port that was given and not taken was a log that nobody found."""
    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093\n")
    for words in (("--port", 29092), ("--host", "0.0.0.0"), ("--port", 29092, "--nodes", 3)):
        done = ottla("up", "--dir", tmp_path, *words)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert f"{words[0]} {words[1]} applies to a new directory only" in done.stderr
    assert ottla("up", "--dir", tmp_path / "new", "--port", 70000).returncode == 2
    assert not (tmp_path / "new").exists()


def test_up_takes_free_ports(tmp_path):
    log_file = tmp_path / "log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "up", "--dir", str(tmp_path / "here"), "--port", "0", "--no-registry", "--no-console"],
            env=environment(), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while "is up at" not in log_file.read_text():
            assert process.poll() is None, log_file.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        listeners = (tmp_path / "here/server.properties").read_text()
        assert all(int(port) > 1024 for port in re.findall(r"127\.0\.0\.1:(\d+)", listeners))
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_node_that_fails_while_it_waits_for_its_quorum_ends(tmp_path):
    """Its disk fails before it ever serves: a supervisor must see the process end, and start it again elsewhere."""
    first, second, listener = free_ports(3)
    config = load({
        "process.roles": "broker,controller", "node.id": "1", "log.dirs": str(tmp_path / "data"),
        "controller.quorum.voters": f"1@127.0.0.1:{first},2@127.0.0.1:{second}", "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{listener},CONTROLLER://127.0.0.1:{first}",
    })  # fmt: skip
    format_standalone(config)

    async def start_and_fail() -> None:
        node = Node(config)
        starting = asyncio.ensure_future(node.start())
        while node.quorum is None:  # noqa: ASYNC110 - nothing announces this moment
            await asyncio.sleep(0.01)
        node.fail("the metadata log has failed")
        async with asyncio.timeout(60):
            await starting

    with pytest.raises(StartupError, match="the metadata log has failed"):
        asyncio.run(start_and_fail())
