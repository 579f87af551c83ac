"""Kafka's own TransactionalMessageCopier (transactions v2, random aborts) on Ottla, while the broker is killed."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.robustness.server_process import ServerProcess
from tests.support.kafka_tools import SHARED_CLASSES, jvm_command

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]

RECORDS = 5000
_WIDTH = 200
"""The copier's batches are of 512 bytes: what does not fill one may wait in the client until it is aborted there."""
_JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", SHARED_CLASSES)
PROPERTIES = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


def copier(server: ServerProcess, log: Path) -> subprocess.Popen[bytes]:
    command = jvm_command(
        _JVM,
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", server.bootstrap_servers, "--input-topic", "in", "--input-partition", "0"),
        *("--output-topic", "out", "--consumer-group", "copiers", "--transactional-id", "copier"),
        *("--transaction-size", "20", "--transaction-timeout", "10000", "--enable-random-aborts"),
        *("--group-mode", "--use-group-metadata"),
    )
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)


def prepare(server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    for future in admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 2, 1)]).values():
        future.result(20)


def feed(server: ServerProcess, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number in numbers:
        producer.produce("in", f"{number:{_WIDTH}}", str(number), partition=0)
    assert producer.flush(30) == 0


def progress(server: ServerProcess) -> int:
    client = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "copiers"})
    try:
        return max(client.committed([TopicPartition("in", 0)], 30)[0].offset, 0)
    finally:
        client.close()


def read(server: ServerProcess, isolation: str) -> list[str]:
    client = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    client.assign([TopicPartition("out", partition, 0) for partition in range(2)])
    values: list[str] = []
    ended: set[int | None] = set()
    until = time.monotonic() + 60
    while len(ended) < 2:
        assert time.monotonic() < until, "the output does not end"
        message = client.poll(1)
        if message is None:
            continue
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        else:
            values.append((message.value() or b"").decode().strip())
    client.close()
    return values


def copy(directory: Path, *, kills: int, timeout_s: float) -> None:
    """The input comes in portions, each right before a kill, so that no copier is ever done before the last of them."""
    portions = [range(RECORDS * at // (kills + 1), RECORDS * (at + 1) // (kills + 1)) for at in range(kills + 1)]
    with ServerProcess(directory, properties=PROPERTIES) as server:
        prepare(server)
        feed(server, portions[0])
        process = copier(server, directory / "copier.log")
        try:
            until = time.monotonic() + timeout_s
            killed = 0
            while (done := progress(server)) < RECORDS:
                assert time.monotonic() < until, (
                    f"{done} of {RECORDS} copied: {(directory / 'copier.log').read_text()[-2000:]}"
                )
                if process.poll() is not None:
                    process = copier(server, directory / "copier.log")
                if killed < kills and done > portions[killed].start:
                    killed += 1
                    feed(server, portions[killed])
                    if killed % 2 == 0:
                        process.kill()
                        process.wait(10)
                    server.kill()
                    server.start()
                time.sleep(0.05)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
        assert killed == kills
        committed, everything = read(server, "read_committed"), read(server, "read_uncommitted")
        assert Counter(committed) == Counter(str(number) for number in range(RECORDS))
        print(f"{len(everything) - len(committed)} records of aborted transactions")
        assert len(everything) > len(committed), "nothing was aborted: the copier shows too little"
        server.assert_no_traceback()


@pytest.mark.timeout(150)
def test_copy_with_random_aborts(tmp_path: Path) -> None:
    copy(tmp_path, kills=1, timeout_s=120)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_copy_while_the_broker_is_killed(tmp_path: Path) -> None:
    copy(tmp_path, kills=int(os.environ.get("KILLS", "12")), timeout_s=600)
