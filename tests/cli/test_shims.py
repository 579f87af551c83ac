"""The shims as programs: both spellings, exit codes, Ctrl-C, a closed pipe, and no traceback whatever is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.cli.kafka.table import TOOLS
from ottla.testing import Broker
from tests.support.ports import free_port

SHORT = "default.api.timeout.ms=700\nrequest.timeout.ms=700\n"


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=50, check=False, stdin=subprocess.DEVNULL
    )


def test_both_spellings_are_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(ottla, ["shims", str(tmp_path / "bin")])
    assert done.exit_code == 0, done.output
    written = {path.name for path in (tmp_path / "bin").iterdir()}
    assert written == {f"kafka-{name}{suffix}" for name in TOOLS for suffix in ("", ".sh")}
    assert "there is no tool 'nope'" in CliRunner().invoke(ottla, ["shims", str(tmp_path), "--only", "nope"]).output


@pytest.mark.parametrize("name", sorted(set(TOOLS) - {"server-start", "server-stop"}))
def test_bad_input_never_ends_in_a_traceback(shims: Path, name: str) -> None:
    for words in (["--no-such-flag"], ["--bootstrap-server"], ["--bootstrap-server", "nonsense", "--list"]):
        done = run(shims / f"kafka-{name}.sh", *words)
        assert "Traceback" not in done.stderr + done.stdout
        assert done.returncode in {0, 1}, (name, words, done)
        assert done.stderr or done.stdout


def test_no_broker_is_said_in_kafkas_words(shims: Path, tmp_path: Path) -> None:
    config = tmp_path / "short.properties"
    config.write_text(SHORT)
    done = run(
        shims / "kafka-topics.sh", "--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", str(config)
    )
    assert done.returncode == 1
    assert (
        done.stdout
        == "Error while executing topic command : Timed out waiting for a node assignment. Call: listTopics\n"
    )


def test_a_closed_pipe_is_no_error(shims: Path) -> None:
    with Broker() as broker:
        command = f"{shims}/kafka-configs.sh --bootstrap-server {broker.bootstrap_servers} --broker 1 --describe --all | head -1"
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout == "All configs for broker 1 are:\n"
    assert done.stderr == ""


def test_server_start_as_the_course_calls_it(shims: Path, tmp_path: Path) -> None:
    """`-c FILE` is the course's spelling; the error is about the file, so it was taken as one."""
    missing = tmp_path / "missing.properties"
    done = run(shims / "kafka-server-start.sh", "-c", str(missing))
    assert done.returncode != 0
    assert "missing.properties" in done.stderr + done.stdout
    assert run(shims / "kafka-server-start.sh").stdout.startswith("USAGE: kafka-server-start.sh [-daemon]")
    done = run(shims / "kafka-server-stop.sh", "--node-id=987654")
    assert (done.returncode, done.stdout) == (1, "No kafka server to stop\n")


def test_storage_as_the_course_calls_it(shims: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
        f"listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\nlog.dirs={tmp_path / 'data'}\n"
    )
    identity = run(shims / "kafka-storage.sh", "random-uuid").stdout.strip()
    assert len(identity) == 22
    done = run(shims / "kafka-storage.sh", "format", "-t", identity, "-c", str(file))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "meta.properties").exists()
    assert identity in run(shims / "kafka-storage.sh", "info", "-c", str(file)).stdout


def test_the_python_that_wrote_them_runs_them(shims: Path) -> None:
    assert sys.executable in (shims / "kafka-topics.sh").read_text()


# config/kraft/server.properties of Kafka 3.2.1, which the course uses; ports and folder are the test's.
OF_THE_COURSE = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
listeners=PLAINTEXT://:{port},CONTROLLER://:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={folder}/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_the_course_launches_its_server(shims: Path, tmp_path: Path) -> None:
    port, controller = free_port(), free_port()
    file = tmp_path / "server.properties"
    file.write_text(OF_THE_COURSE.format(port=port, controller=controller, folder=tmp_path))
    done = run(shims / "kafka-storage.sh", "format", "-t", "1w6ODuNGSyGFdSRhZSQ69w", "-c", str(file))
    assert done.returncode == 0, done.stderr
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([shims / "kafka-server-start.sh", "-c", str(file)], stdout=log, stderr=log)
    try:
        topics = [shims / "kafka-topics.sh", "--bootstrap-server", f"localhost:{port}"]
        for _ in range(20):  # the server may still be starting
            done = run(*topics, "--create", "--topic", "second_topic", "--partitions", "5")
            if done.returncode == 0:
                break
        assert "Created topic second_topic." in done.stdout, (tmp_path / "log").read_text()
        described = run(*topics, "--describe", "--topic", "second_topic").stdout
        assert "PartitionCount: 5\tReplicationFactor: 1" in described
        assert "segment.bytes=1073741824" in described, "as the course shows it"
    finally:
        server.terminate()
        assert server.wait(30) in {0, 143, -15}, (tmp_path / "log").read_text()
