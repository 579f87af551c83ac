"""Verbs that change who may do what, and open transactions, on a node that checks: acl, user, txn; completion and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException, Producer

from ottla.cli.commands import ottla
from ottla.testing import Broker

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SOURCES = str(Path(__file__).parents[2] / "src")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(properties=AUTHORIZER) as running:
        yield running


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)


def call(*words: str, code: int = 0, stdin: str = "") -> Result:
    done = CliRunner().invoke(ottla, list(words), input=stdin)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done


def rules() -> list[tuple[str, ...]]:
    listed = json.loads(call("acl", "list", "-o", "json").stdout)
    return sorted(tuple(row[name] for name in ("principal", "may", "operation", "name", "pattern")) for row in listed)


def test_acl() -> None:
    assert rules() == []
    assert (
        "allow: User:alice read, describe"
        in call("acl", "allow", "User:alice", "topic", "t", "read", "describe").output
    )
    call("acl", "deny", "User:bob", "topic", "logs.", "--prefixed", "--host", "10.0.0.1")
    assert rules() == [
        ("User:alice", "allow", "describe", "t", "literal"),
        ("User:alice", "allow", "read", "t", "literal"),
        ("User:bob", "deny", "all", "logs.", "prefixed"),
    ]
    assert "removed 1 rule\n" in call("acl", "remove", "User:alice", "topic", "t", "read").output
    assert "removed 0 rules" in call("acl", "remove", "User:alice", "topic", "other").output
    assert "removed 1 rule\n" in call("acl", "remove", "User:alice", "topic", "t").output
    denied = ("User:bob", "topic", "logs.", "--prefixed", "--host", "10.0.0.1")
    assert "removed 1 rule\n" in call("acl", "remove", *denied).output
    assert rules() == []


def test_users() -> None:
    call("user", "add", "carol", stdin="first-secret\nfirst-secret\n")
    call("user", "add", "carol", "--mechanism", "SCRAM-SHA-256", "--iterations", "4096", stdin="one\none\n")
    listed = json.loads(call("user", "list", "-o", "json").stdout)
    assert sorted((row["user"], row["mechanism"]) for row in listed) == [
        ("carol", "SCRAM-SHA-256"),
        ("carol", "SCRAM-SHA-512"),
    ]
    assert "secret" not in json.dumps(listed)
    call("user", "remove", "carol")
    call("user", "remove", "carol", "--mechanism", "SCRAM-SHA-256")
    assert json.loads(call("user", "list", "-o", "json").stdout) == []
    assert call("user", "remove", "carol", code=1).output.startswith("Error: ")


def test_a_transaction_is_terminated(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "stuck"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("held", b"x")
    producer.flush(30)
    listed = json.loads(call("txn", "list", "-o", "json").stdout)
    assert [(row["id"], row["state"]) for row in listed] == [("stuck", "Ongoing")]
    assert "held" in call("txn", "describe", "stuck").stdout
    call("txn", "terminate", "stuck")
    assert "Ongoing" not in call("txn", "describe", "stuck").stdout
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)
    assert call("txn", "describe", "nosuch", code=1).output.startswith("Error: ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(shell: str) -> None:
    script = call("completion", shell).stdout
    assert "_OTTLA_COMPLETE" in script
    if shell == "bash":
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr


def test_completion_knows_the_verbs() -> None:
    asked = {
        **os.environ,
        "PYTHONPATH": SOURCES,
        "_OTTLA_COMPLETE": "bash_complete",
        "COMP_WORDS": "ottla to",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from ottla.cli.commands import ottla; ottla(prog_name='ottla')"],
        env=asked, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert sorted(done.stdout.split()) == ["plain,top", "plain,topic"]


def test_ctrl_c_while_consuming(broker: Broker) -> None:
    call("topic", "create", "followed", "--partitions", "1")
    call("produce", "followed", stdin="a\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", "consume", "followed", "-b", broker.bootstrap_servers],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SOURCES},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert "a" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert "Traceback" not in err
    assert process.returncode in {0, 1, 130}
