"""One data directory of Apache Kafka, damaged in many places at once, under Apache Kafka and under Ottla.

Each partition has a log directory of its own, and one damage, so that a directory which goes offline hides nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.generated.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.generated.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.protocol.generated.describe_transactions_request import DescribeTransactionsRequest
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.robustness.damage import SeenPartition, look_at
from tests.robustness.wire import call, produce
from tests.support.apache_kafka import ApacheKafka
from tests.support.frames import RawConnection

TOPIC = "damaged"
T0 = 1_700_000_000_000
TIMEOUT_S = 30.0
NOTHING = SeenPartition(0)


def properties(where: Path, count: int) -> dict[str, str]:
    return {
        "log.dirs": ",".join(str(where / f"d{number}") for number in range(count)),
        "metadata.log.dir": str(where / "metadata"),
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "log.retention.ms": "-1",
        "log.cleaner.backoff.ms": "600000",
        "log.initial.task.delay.ms": "600000",
        "auto.create.topics.enable": "false",
    }


def live(server: ApacheKafka, count: int, *, run: int) -> None:
    """Transactions over all partitions, every third aborted; each partition gets several small segments."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    if run == 0:
        config = {"segment.index.bytes": "48", "index.interval.bytes": "512"}
        for future in admin.create_topics([NewTopic(TOPIC, count, 1, config=config)]).values():
            future.result(TIMEOUT_S)
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "transactional.id": "t",
            "batch.num.messages": 5,
            "linger.ms": 5,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    for number in range(5 + run):
        producer.begin_transaction()
        for n in range(15):
            for partition in range(count):
                at = T0 + run * 100_000 + number * 1000 + n * 10
                value = b"%d %d %d " % (run, number, n) * 12
                producer.produce(TOPIC, value, key=b"%d" % n, partition=partition, timestamp=at)
        if producer.flush(TIMEOUT_S):
            raise TimeoutError("not everything was acknowledged")
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(TIMEOUT_S)
    await_complete(server.port)


def await_complete(port: int) -> None:
    """A transaction's end is answered before its markers are written: a server that stops in between goes on later."""
    deadline = time.monotonic() + TIMEOUT_S
    with RawConnection("127.0.0.1", port, timeout=20) as connection:
        while call(connection, DescribeTransactionsRequest(["t"]), 0).transaction_states[0].topics:
            if time.monotonic() > deadline:
                raise TimeoutError("the last transaction does not end")
            time.sleep(0.05)


@dataclass(frozen=True)
class Sight:
    """What a client sees of a partition, and after one more record."""

    seen: SeenPartition
    looked_up: tuple[Any, ...] = ()
    producers: tuple[Any, ...] = ()
    appended: tuple[int, int] = (0, 0)
    after: SeenPartition = NOTHING


def sight(connection: RawConnection, partition: int, deadline: float) -> Sight:
    at = (TOPIC, partition)
    while (seen := look_at(connection, at)).error in {5, 6, 9} and time.monotonic() < deadline:
        time.sleep(0.1)
    if seen.error and seen.start < 0:
        return Sight(seen)
    looked_up: list[Any] = []
    for timestamp in (-3, -4, T0, T0 + 1005, T0 + 2070, T0 + 100_000, T0 + 999_999):
        asked = [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, -1, timestamp)])]
        found = call(connection, ListOffsetsRequest(-1, 0, asked), 9).topics[0].partitions[0]
        looked_up.append((timestamp, found.error_code, found.offset, found.timestamp))
    for epoch in range(3):
        asked_epoch = [OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(partition, -1, epoch)])]
        end = call(connection, OffsetForLeaderEpochRequest(-1, asked_epoch), 4).topics[0].partitions[0]
        looked_up.append((f"epoch {epoch}", end.error_code, end.leader_epoch, end.end_offset))
    described = call(connection, DescribeProducersRequest([TopicRequest(TOPIC, [partition])]), 0)
    producers = tuple(
        (p.producer_id, p.producer_epoch, p.last_sequence, p.current_txn_start_offset)
        for p in described.topics[0].partitions[0].active_producers
    )
    appended = produce(connection, TOPIC, partition, b"after")
    return Sight(seen, tuple(looked_up), producers, appended, look_at(connection, at))


def sights(port: int, partitions: list[int], patience: float = 10) -> dict[int, Sight]:
    deadline = time.monotonic() + patience
    with RawConnection("127.0.0.1", port, timeout=20) as connection:
        return {partition: sight(connection, partition, deadline) for partition in partitions}


def home_of(port: int, count: int) -> dict[int, str]:
    """Partition -> name of its log directory."""
    with RawConnection("127.0.0.1", port, timeout=20) as connection:
        asked = DescribeLogDirsRequest([DescribableLogDirTopic(TOPIC, list(range(count)))])
        return {
            p.partition_index: Path(d.log_dir).name
            for d in call(connection, asked).results
            for t in d.topics
            for p in t.partitions
        }
