"""`ottla topic forget`: one key's values are gone from every file and from every earlier copy of a file."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.verbs.topic import topic
from ottla.model.erasures import Erasure, key_hash
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.records import batch_payload, iterate_batches
from ottla.testing import Broker
from tests.robustness.server_process import ServerProcess
from tests.security.session import Session
from tests.security.test_encryption import master_line, storage
from tests.support.live_copy import copy_live


class Node(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


TOPIC = "people"
PARTITIONS = 2
KEYS = (b"ada", b"bob", b"eve")


def properties(tmp_path: Path, **more: str) -> dict[str, str]:
    (tmp_path / "master").write_text(master_line())
    return {
        "ottla.encryption.master.key.file": str(tmp_path / "master"),
        "log.segment.bytes": str(1 << 20),
        "offsets.topic.num.partitions": "1",
        **more,
    }


def make_topic(broker: Node, settings: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=settings or {})])[TOPIC].result(20)


def secret(key: bytes, number: int) -> bytes:
    return b"SECRET-OF-" + key + b"-%05d" % number


def write(broker: Node, count: int, codec: str = "none", *, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 5})
    for number in range(first, first + count):
        key = KEYS[number % len(KEYS)]
        producer.produce(
            TOPIC, secret(key, number) + b"." * 300, key, partition=number % PARTITIONS,
            headers={"h": b"HEADER-OF-" + key},
        )  # fmt: skip
    assert producer.flush(60) == 0


def read(broker: Node, count: int, seconds: float = 40) -> dict[tuple[int, int], tuple[bytes, bytes | None, Any]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for message in consumer.consume(5000, 0.2):
            assert message.error() is None, message.error()
            found[message.partition(), message.offset()] = message.key(), message.value(), message.headers()
        if len(found) >= count:
            break
    consumer.close()
    return found


def read_to_the_end(broker: Node) -> dict[tuple[int, int], tuple[bytes, bytes | None, Any]]:
    """Of each partition, as far as it goes now."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found, left = {}, set(range(PARTITIONS))
    deadline = time.monotonic() + 40
    while left:
        assert time.monotonic() < deadline, left
        for message in consumer.consume(5000, 0.2):
            if message.error() is None:
                found[message.partition(), message.offset()] = message.key(), message.value(), message.headers()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    consumer.close()
    return found


def forget(broker: Broker, *words: str) -> Any:
    return CliRunner().invoke(topic, ["forget", TOPIC, "-b", broker.bootstrap_servers, "--yes", *words])


def readable(tmp_path: Path, directory: Path) -> bytes:
    """All that the files of the topic yield with the keys that are there now: plain payloads, one after the other."""
    found = b""
    disk = storage(tmp_path)
    for path in sorted(directory.glob(f"{TOPIC}-*/*")):
        if ".log" not in path.name:
            found += path.read_bytes()
            continue
        with contextlib.suppress(OSError):  # no key for it
            found += b"".join(payloads(disk.read_bytes(str(path))))
    return found


def payloads(data: bytes) -> list[bytes]:
    return [bytes(batch_payload(data, position, header)) for position, header in iterate_batches(data)]


def of(key: bytes, found: dict[Any, Any]) -> list[tuple[bytes | None, Any]]:
    return [(value, headers) for its, value, headers in found.values() if its == key]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_one_key_is_forgotten_and_the_others_are_not(tmp_path: Path, codec: str) -> None:
    data = tmp_path / "node" / "data"
    with Broker(directory=tmp_path / "node", properties=properties(tmp_path)) as broker:
        make_topic(broker)
        write(broker, 9000, codec)
        before = read(broker, 9000)
        copy_live(data, tmp_path / "backup")
        done = forget(broker, "--key", "bob")
        assert done.exit_code == 0, done.output
        write(broker, 3, codec, first=9000)
        after = read(broker, 9003)
        assert after.keys() > before.keys(), "no offset is missing"
        assert len([each for each in of(b"bob", after) if each == (None, None)]) == 3000
        assert len([each for each in of(b"bob", after) if each[0] is not None]) == 1, "written after it"
        kept = {place: row for place, row in before.items() if row[0] != b"bob"}
        assert {place: after[place] for place in kept} == kept
    # No file, nor a copy from before, yields the value with the keys that are left; the other keys' values are there.
    # storage() looks for the keys below tmp_path, so the data lie there for that look.
    for source in (data, tmp_path / "backup"):
        look = tmp_path / "look"
        shutil.copytree(source, look / "files")
        shutil.copy(data / "encryption-keys", look / "encryption-keys")
        (look / "master").write_text(master_line())
        left = readable(look, look / "files")
        shutil.rmtree(look)
        assert b"SECRET-OF-bob-08" not in left
        assert b"HEADER-OF-bob" not in left.replace(b"HEADER-OF-bob", b"", 1), "one record was written after it"
        if source == data:
            assert b"SECRET-OF-ada" in left
    with Broker(directory=tmp_path / "node", properties=properties(tmp_path)) as broker:
        again = read(broker, 9003)
        assert again == after, "after a restart"
        write(broker, 3, codec, first=9003)
        assert len(read(broker, 9006)) == 9006


@pytest.mark.timeout(180)
def test_on_a_compacted_topic_it_is_a_tombstone(tmp_path: Path) -> None:
    more = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "100"}
    with Broker(directory=tmp_path / "node", properties=properties(tmp_path, **more)) as broker:
        make_topic(
            broker,
            {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01",
             "delete.retention.ms": "0"},
        )  # fmt: skip
        write(broker, 60)
        assert forget(broker, "--key", "bob").exit_code == 0
        deadline = time.monotonic() + 60
        keys = set(KEYS)
        while keys != {b"ada", b"eve"}:  # the cleaner takes the tombstones away, in its second pass
            assert time.monotonic() < deadline, keys
            for number in (0, 2):
                write(broker, 1, first=6 * 100 + number)
                write(broker, 1, first=6 * 100 + 3 + number)
            time.sleep(0.6)
            keys = {key for key, _, _ in read_to_the_end(broker).values()}
        found = read_to_the_end(broker)
        assert all(value is not None for _, value, _ in found.values())


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_killed_while_it_forgets(tmp_path: Path) -> None:
    """kill -9 at ten moments of it: after the last start everything of the key is gone and nothing else."""
    moments = random.Random(int(os.environ.get("SEED", "8")))
    server = ServerProcess(tmp_path, properties={**properties(tmp_path), "log.segment.delete.delay.ms": "100"})
    server.format()
    server.start()
    try:
        make_topic(server)
        write(server, 30_000)
        before = read(server, 30_000)
        assert len(before) == 30_000, "read in time"
        for key in (b"bob", b"eve"):
            ends = dict.fromkeys(range(PARTITIONS), 15000)
            entry = str(Erasure(key_hash(TOPIC, key), ends))
            with Session(server.port) as session:
                change = AlterConfigsResource(2, TOPIC, [AlterableConfig("ottla.encryption.forget", 2, entry)])
                assert session.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0
            for _ in range(5):
                time.sleep(moments.uniform(0.0, 1.2))
                server.kill()
                server.start()
        deadline = time.monotonic() + 240
        while True:
            after = read(server, 30_000)
            left = sum(value is not None for key in (b"bob", b"eve") for value, _ in of(key, after))
            if not left and len(after) == len(before):
                break
            assert time.monotonic() < deadline, f"{left} values in {len(after)} of {len(before)} records"
        assert after.keys() == before.keys()
        ada = {place: row for place, row in before.items() if row[0] == b"ada"}
        assert {place: after[place] for place in ada} == ada
        server.stop()
        server.start()
        assert read(server, 30_000) == after
        server.assert_no_traceback()
    finally:
        server.kill()


def test_the_look_can_fail(tmp_path: Path) -> None:
    """Before it is forgotten the same look finds the value."""
    with Broker(directory=tmp_path / "node", properties=properties(tmp_path)) as broker:
        make_topic(broker)
        write(broker, 30)
    look = tmp_path / "look"
    shutil.copytree(tmp_path / "node" / "data", look / "files")
    shutil.copy(tmp_path / "node" / "data" / "encryption-keys", look / "encryption-keys")
    assert b"SECRET-OF-bob" in readable(look, look / "files")


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "plain") as broker:
        make_topic(broker)
        assert "nothing to forget" in forget(broker, "--key", "bob").output
        write(broker, 3)
        refused = forget(broker, "--key", "bob")
        assert refused.exit_code != 0
        assert "needs encryption at rest" in refused.output
        assert forget(broker).exit_code == 2
        assert forget(broker, "--key-hex", "zz").exit_code == 2
        assert len(of(b"bob", read(broker, 3))) == 1


def test_entries_say_what_and_up_to_where() -> None:
    erasure = Erasure(key_hash("t", b"k"), {1: 7, 0: 2**40})
    assert Erasure.parse(str(erasure)) == erasure
    assert key_hash("t", b"k") != key_hash("u", b"k")
    for bad in ("", "abc", str(erasure) + "-", str(erasure).replace(":", ";"), "g" + str(erasure)[1:]):
        with pytest.raises(ValueError, match="an entry is"):
            Erasure.parse(bad)
