"""The same log compacted by Apache Kafka and by Ottla: the same batches, records, markers and transaction index."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.interop.settled import await_ended
from tests.support.apache_kafka import ApacheKafka

from ottla.env.config import TopicConfig
from ottla.log.cleaner import Cleaner
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import load_partition_log
from ottla.log.transaction_index import read_aborted
from ottla.model.ids import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import DiskStorage

from .compaction_history import OneLog, finished, read_batches

TOPIC = "compacted-twice"
SETTINGS = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", "index.interval.bytes": "100"}
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact"}), segment_ms=500, min_cleanable_dirty_ratio=0.01, index_interval_bytes=100
)


def make_compacted(admin: AdminClient) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([topic])[topic].result(20)


def write_history(bootstrap: str) -> None:
    """Transactions that commit and abort, idempotent writes between their batches, tombstones, four codecs."""
    rng = random.Random(5)
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    transactional = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"compaction-{codec}", "compression.type": codec})
        for codec in ("none", "lz4", "gzip")
    ]
    for producer in transactional:
        producer.init_transactions(30)

    def batch(producer: Producer) -> None:
        for _ in range(rng.randint(1, 5)):
            value = None if rng.random() < 0.2 else b"v%d" % rng.randint(0, 999)
            producer.produce(TOPIC, key=b"key %d" % rng.randint(0, 12), value=value, partition=0)
        producer.flush(20)

    for _ in range(30):
        time.sleep(0.08)
        if rng.random() < 0.4:
            batch(plain)
            continue
        producer = rng.choice(transactional)
        producer.begin_transaction()
        batch(producer)
        if rng.random() < 0.5:
            batch(plain)
        if rng.random() < 0.3:
            batch(producer)
        if rng.random() < 0.6:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    await_ended(bootstrap)
    plain.produce(TOPIC, key=b"gone", value=None, partition=0)
    plain.flush(20)
    time.sleep(1)
    plain.produce(TOPIC, key=b"end", value=b"end", partition=0)
    plain.flush(20)


def load(directory: Path) -> PartitionLog:
    log = load_partition_log(
        LogDirectory(DiskStorage(), str(directory.parent)),
        str(directory),
        TopicPartition(TOPIC, 0),
        CONFIG,
        now_ms=SystemClock().time_ms(),
        clean=False,
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


def shape(log: PartitionLog) -> list[object]:
    """Everything but what may differ: the horizon is the time of the pass, and a batch that lost its first record keeps
    its base timestamp here while Kafka takes the next record's."""
    return [
        (header._replace(crc=0, base_timestamp=0, batch_length=0), records) for header, records in read_batches(log)
    ]


def aborted(directory: Path) -> list[object]:
    return [txn for path in sorted(directory.glob("*.txnindex")) for txn in read_aborted(DiskStorage(), str(path))]


def files(source: Path, target: Path) -> Path:
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.deleted"))


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_both_leave_the_same(tmp_path: Path, apache_kafka: ApacheKafka) -> None:
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config={**SETTINGS, "retention.ms": "-1"})])[TOPIC].result(20)
    write_history(apache_kafka.bootstrap_servers)
    source = apache_kafka.data_dir / f"{TOPIC}-0"
    mine = files(source, tmp_path / "ottla" / source.name)

    make_compacted(admin)
    checkpoint = apache_kafka.data_dir / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + 60  # it looks every 15 s
    while not (checkpoint.exists() and TOPIC in checkpoint.read_text()):
        assert time.monotonic() < deadline, "Kafka's cleaner did not come"
        time.sleep(0.2)
    theirs = files(source, tmp_path / "kafka" / source.name)
    their_aborted = aborted(theirs)

    log = load(mine)
    assert len(log.segments) > 3
    stats = finished(Cleaner(OneLog(log), SystemClock()).clean_next())
    assert stats is not None
    assert f"{TOPIC} 0 {stats.end_offset}\n" in checkpoint.read_text()
    assert aborted(mine) == their_aborted
    assert their_aborted
    found = shape(log)
    assert found == shape(load(theirs))
    assert any(header.has_delete_horizon for header, _ in read_batches(log))
    assert any(header.is_control for header, _ in read_batches(log))
