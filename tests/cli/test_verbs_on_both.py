"""Each humane verb once against Ottla and once against Apache Kafka: the same call does the same on both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException, Producer

from ottla.cli.commands import ottla
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(params=["ottla_server", "apache_server"], scope="module")
def server(request: pytest.FixtureRequest) -> ApacheKafka:
    running: ApacheKafka = request.getfixturevalue(request.param)
    return running


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ApacheKafka) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", server.bootstrap_servers)


def call(*words: str, code: int = 0, stdin: str = "") -> Result:
    done = CliRunner().invoke(ottla, list(words), input=stdin)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done


def answer(*words: str) -> Any:
    return json.loads(call(*words, "-o", "json").stdout)


def eventually(true: Callable[[], bool]) -> None:
    """A broker hears of a change from its controller, a moment after the controller has answered."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def made(topic: str) -> None:
    call("topic", "create", topic, "--partitions", "1")
    eventually(lambda: topic in call("topic", "list").stdout)


def test_topic() -> None:
    call("topic", "create", "made", "--partitions", "2", "--config", "retention.ms=1000")
    row = {"topic": "made", "partitions": 2, "replicas": 1, "under-replicated": 0}
    eventually(lambda: row in answer("topic", "list"))
    call("topic", "alter", "made", "--partitions", "3")
    eventually(lambda: len(answer("topic", "describe", "made")["partitions"]) == 3)
    assert answer("topic", "describe", "made")["configs"] == {"retention.ms": "1000"}
    call("topic", "delete", "made", "-y")
    eventually(lambda: row["topic"] not in call("topic", "list").stdout)


def test_produce_and_consume() -> None:
    made("records")
    call("produce", "records", "-K", ":", "-H", "from=test", stdin="a:1\nb:2\nc:3\n")
    assert call("consume", "records", "-e", "-f", "%p %o %k %v %h\\n").stdout == (
        "0 0 a 1 from=test\n0 1 b 2 from=test\n0 2 c 3 from=test\n"
    )
    assert call("consume", "records", "-e", "--filter", 'key == "b"', "-f", "%v\\n").stdout == "2\n"
    assert call("consume", "records", "-e", "--from", "-10m", "-n", "1", "-f", "%v\\n").stdout == "1\n"
    assert "nosuch" in call("consume", "nosuch", "-e", code=1).output


def test_a_group_commits_what_is_printed() -> None:
    made("committed")
    call("produce", "committed", stdin="".join(f"{number}\n" for number in range(6)))
    assert call("consume", "committed", "-g", "printers", "--from", "1", "-n", "2", "-f", "%v\\n").stdout == "1\n2\n"
    assert [row["offset"] for row in answer("group", "describe", "printers")["partitions"]] == [3]
    assert call("consume", "committed", "-g", "printers", "-e", "-f", "%v\\n").stdout == "3\n4\n5\n"
    assert [row["offset"] for row in answer("group", "describe", "printers")["partitions"]] == [6]
    assert "--from" in call("consume", "committed", "-g", "printers", "--from", "1", code=1).output


def test_export_and_import(tmp_path: Path) -> None:
    made("exported")
    made("imported")
    call("produce", "exported", stdin="x\ny\n")
    call("export", "exported", str(tmp_path / "e.jsonl"))
    call("import", str(tmp_path / "e.jsonl"), "imported")
    assert call("consume", "imported", "-e", "-f", "%v\\n").stdout == "x\ny\n"


def test_group() -> None:
    made("grouped")
    call("produce", "grouped", stdin="a\nb\nc\n")
    call("group", "reset", "humane", "grouped", "--to", "1", "--execute")
    described = answer("group", "describe", "humane")
    assert (described["lag"], described["state"]) == (2, "Empty")
    assert "humane" in call("group", "list").stdout
    call("group", "delete", "humane")
    assert "not found" in call("group", "describe", "humane", code=1).output


def test_config() -> None:
    made("configured")
    call("config", "set", "topic", "configured", "retention.ms=5000")
    eventually(lambda: "5000" in call("config", "show", "topic", "configured").stdout)
    call("config", "unset", "topic", "configured", "retention.ms")
    eventually(lambda: "5000" not in call("config", "show", "topic", "configured").stdout)
    assert call("config", "set", "topic", "configured", "no.such=1", code=1).output.startswith("Error: ")


def test_acl() -> None:
    call("acl", "allow", "User:alice", "topic", "t", "read")
    eventually(lambda: "User:alice" in call("acl", "list").stdout)
    assert "removed 1 rule\n" in call("acl", "remove", "User:alice", "topic", "t").output
    eventually(lambda: "User:alice" not in call("acl", "list").output)


def test_user() -> None:
    call("user", "add", "carol", "--iterations", "4096", stdin="secret\nsecret\n")
    eventually(lambda: "carol" in call("user", "list").stdout)
    call("user", "remove", "carol")
    eventually(lambda: "carol" not in call("user", "list").output)
    assert call("user", "remove", "carol", code=1).output.startswith("Error: ")


def test_cluster_status() -> None:
    status = answer("cluster", "status")
    assert [node["id"] for node in status["nodes"]] == [1]
    assert answer("cluster", "quorum")["leader"] == 1


def test_txn(server: ApacheKafka) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": "stuck"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("held", b"x")
    producer.flush(60)
    assert "stuck" in call("txn", "list").stdout
    assert "held" in call("txn", "describe", "stuck").stdout
    call("txn", "terminate", "stuck")
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_bench() -> None:
    figures = answer("bench", "-n", "500", "-s", "10")
    assert [row["records"] for row in figures] == [500, 500]


def test_doctor() -> None:
    assert "Traceback" not in call("doctor").output


def test_top() -> None:
    assert call("top", "--count", "1").exit_code == 0
