"""Master keys: rotated while records are written and read, from each of the three sources; and wrong ones at the start."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.security.keystore import FILE_NAME
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.security.test_encryption import master_line

VALUE = b"v" * 4000
PER_ROUND = 600  # more than two segments
FILE, ENVIRONMENT, COMMAND = (f"ottla.encryption.master.key.{source}" for source in ("file", "env", "command"))


def line(number: int) -> str:
    return master_line(f"m{number}", b"%d" % number)


def masters(node: Path) -> set[str]:
    return {entry["master"] for entry in json.loads((node / "data" / FILE_NAME).read_text())["keys"]}


def start(node: Path, source: dict[str, str]) -> Broker:
    return Broker(directory=node, properties={"log.segment.bytes": str(1 << 20), **source})


def write(broker: Broker, first: int) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for number in range(first, first + PER_ROUND):
        producer.produce("t", VALUE, b"%d" % number, partition=0, on_delivery=lambda e, _: e and failed.append(e))
    assert producer.flush(60) == 0
    assert not failed


def read(broker: Broker, count: int) -> None:
    """All of them from the first, by a consumer of its own."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    keys: list[bytes | None] = []
    for _ in range(200):
        for message in consumer.consume(500, 0.2):
            assert message.error() is None
            keys.append(message.key())
        if len(keys) >= count:
            break
    consumer.close()
    assert keys == [b"%d" % number for number in range(count)]


@pytest.mark.timeout(180)
def test_rotated_while_it_runs_and_at_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the file without a restart; by the environment and a command at a restart, each time with the newest key only."""
    node, file = tmp_path / "node", tmp_path / "master"
    file.write_text(line(1))
    written = 0
    with start(node, {FILE: str(file)}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        for number in (2, 3, 4):
            file.write_text(line(number) + line(number - 1))
            write(broker, written)
            written += PER_ROUND
            assert f"m{number}" in masters(node), "wrapped again as new segments came"
            read(broker, written)
    assert masters(node) == {"m4"}
    monkeypatch.setenv("OTTLA_TEST_MASTERS", line(5) + line(4))
    with start(node, {ENVIRONMENT: "OTTLA_TEST_MASTERS"}) as broker:
        write(broker, written)
        written += PER_ROUND
        read(broker, written)
    assert masters(node) == {"m5"}
    (tmp_path / "printed").write_text(line(5))
    with start(node, {COMMAND: f"cat {tmp_path / 'printed'}"}) as broker:
        read(broker, written)


@pytest.mark.timeout(180)
def test_wrong_or_missing_keys_are_one_line_and_touch_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, file = tmp_path / "node", tmp_path / "master"
    file.write_text(line(1))
    with start(node, {FILE: str(file)}):
        pass
    before = state(node)
    (tmp_path / "other").write_text(line(2))
    (tmp_path / "forged").write_text(master_line("m1", b"2"))
    monkeypatch.setenv("OTTLA_TEST_FORGED", master_line("m1", b"2"))
    monkeypatch.delenv("OTTLA_TEST_NOTHING", raising=False)
    cases = {
        "no such file": {FILE: str(tmp_path / "nowhere")},
        "is missing; keep old keys": {FILE: str(tmp_path / "other")},
        "did not write": {FILE: str(tmp_path / "forged")},
        "there is no master key": {ENVIRONMENT: "OTTLA_TEST_NOTHING"},
        "master key m1 did not write": {ENVIRONMENT: "OTTLA_TEST_FORGED"},
        "command failed: exit code 1": {COMMAND: "false"},
        "command failed: filenotfounderror": {COMMAND: str(tmp_path / "no-such-command")},
        "master key 1 is not": {COMMAND: "echo nonsense"},
    }
    for message, source in cases.items():
        with pytest.raises(StartupError) as refused:
            start(node, source).start()
        assert message in str(refused.value).lower(), refused.value
        assert "\n" not in str(refused.value)
        assert "MjIy" not in str(refused.value), "a key"
        assert state(node) == before, message
    with start(node, {FILE: str(file)}):
        pass


def state(node: Path) -> dict[str, str]:
    return {
        str(path.relative_to(node)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(node.rglob("*"))
        if path.is_file() and path.name != "server.properties"
    }
