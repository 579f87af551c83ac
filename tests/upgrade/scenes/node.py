"""A single node that was stopped cleanly: topics of every kind, transactions, groups, users, settings, a registry.

Every record here has its place in a segment, an index, a snapshot or a checkpoint that the next version must read.
"""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer

from ottla.client.cluster import Cluster
from ottla.client.configs import SET, ConfigResourceType, alter_configs
from ottla.client.offsets import delete_records
from ottla.client.topics import create_partitions, delete_topic
from tests.robustness.server_process import ServerProcess
from tests.support.ports import free_port
from tests.upgrade import observations as observe
from tests.upgrade.observations import Json
from tests.upgrade.rows import START_MS, Record, send, send_with
from tests.upgrade.scenes import groups, registry, users
from tests.upgrade.scenes.steps import SMALL, await_true, make_topic, transactional_producer

MINUTE_MS = 60_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROPERTIES = SMALL | {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret of the recorded node",
    "auto.create.topics.enable": "false",
    "group.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.share.min.record.lock.duration.ms": "1000",
    # Each of these makes a file that a node of the defaults has only after days.
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "internal.metadata.log.segment.bytes": "8000",
    "log.cleaner.backoff.ms": "100",
}


def record(folder: Path, work: Path) -> Json:
    """`folder` is packed; `work` holds what no later version is asked to read."""
    server = ServerProcess(work, log_dirs=[folder / "data"])
    sasl_port = free_port()
    addresses = {"PLAINTEXT": server.port, "SASL": sasl_port, "CONTROLLER": server.controller_port}
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in addresses.items())
    server.properties |= PROPERTIES | {"listeners": listeners}
    manifest: Json = {"properties": PROPERTIES}
    with server:
        servers = server.bootstrap_servers
        with observe.connected(servers) as cluster:
            _topics(cluster, servers)
            _compacted(cluster, servers, folder / "data")
            _transactional(cluster, servers)
            _settings(cluster)
            manifest["logins"] = users.record(cluster, servers, f"127.0.0.1:{sasl_port}")
            manifest["shared"] = groups.record(cluster, servers)
            manifest["registry"] = registry.record(servers)
            manifest |= observed(cluster, servers)
            _await_snapshot(folder / "data")
            code, _ = server.stop()
            assert code == 0, server.log_text()
    return manifest


def observed(cluster: Cluster, servers: str) -> Json:
    topics = observe.topics(cluster)
    places = observe.places(topics)
    return {
        "cluster_id": observe.cluster_id(cluster),
        "features": observe.features(cluster),
        "topics": topics,
        "configs": observe.configs(cluster),
        "records": observe.records(servers, places),
        "producers": observe.producers(cluster, places),
        "transactions": observe.transactions(cluster),
        "security": observe.security(cluster),
        "groups": observe.groups(cluster),
    }


def _topics(cluster: Cluster, servers: str) -> None:
    """Plain topics: a codec each, segments by time and by size, odd records, a moved log start, more partitions."""
    for codec in CODECS:
        make_topic(cluster, f"codec-{codec}", 2)
        records = [
            Record(b"key-%d" % n, b"value %d of %s " % (n, codec.encode()) * 3, START_MS + n, [], n % 2)
            for n in range(20)
        ]
        send(servers, f"codec-{codec}", records, compression_type=codec, linger_ms=20)
    make_topic(cluster, "odd")
    send(servers, "odd", _odd())
    make_topic(cluster, "timed", 1, configs={"segment.ms": "60000", "index.interval.bytes": "1"})
    for n in range(6):  # one batch each, two minutes apart: a segment each
        send(servers, "timed", [Record(b"%d" % n, b"minute %d" % n, START_MS + 2 * n * MINUTE_MS)])
    make_topic(cluster, "large", 1, configs={"segment.bytes": str(1 << 20)})
    for n in range(3):
        send(servers, "large", [Record(b"%d" % n, bytes([65 + n]) * 600_000, START_MS + n)])
    make_topic(cluster, "log-append-time", 1, configs={"message.timestamp.type": "LogAppendTime"})
    send(servers, "log-append-time", [Record(None, b"%d" % n) for n in range(3)])
    make_topic(cluster, "shortened")
    send(servers, "shortened", [Record(None, b"%d" % n) for n in range(10)])
    delete_records(cluster, {("shortened", 0): 4})
    make_topic(cluster, "grown")
    send(servers, "grown", [Record(None, b"first")])
    create_partitions(cluster, "grown", 3, None)
    make_topic(cluster, "deleted")
    send(servers, "deleted", [Record(None, b"gone")])
    delete_topic(cluster, "deleted")
    for name in ("empty", "shared", "lines"):
        make_topic(cluster, name)


def _odd() -> list[Record]:
    return [
        Record(None, b"no key"),
        Record(b"no value", None),
        Record(b"", b""),
        Record(None, None, 0),
        Record(b"\x00\xff", bytes(range(256))),
        Record(b"headers", b"h", START_MS, [("a", b"1"), ("a", b"2"), ("", b""), ("null", None), ("\u00e9", b"\xff")]),
        Record("\u03ba".encode(), "\u4e16\u754c".encode(), START_MS + 1),
        Record(b"old", b"1970"),
    ]


def _compacted(cluster: Cluster, servers: str, data: Path) -> None:
    """Cleaned once: superseded values are gone, a tombstone has its delete horizon, the active segment is dirty."""
    settings = {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "60000",
        "delete.retention.ms": "315360000000",
    }  # fmt: skip
    make_topic(cluster, "compacted", 1, configs=settings)
    for n in range(8):
        batch = [Record(b"key-%d" % key, b"%d at %d" % (key, n)) for key in range(4)]
        batch = [one._replace(timestamp_ms=START_MS + 2 * n * MINUTE_MS) for one in batch]
        send(servers, "compacted", batch)
    send(servers, "compacted", [Record(b"key-0", None, START_MS + 20 * MINUTE_MS)])
    send(servers, "compacted", [Record(b"key-9", b"dirty", START_MS + 24 * MINUTE_MS)])

    def cleaned() -> bool:
        checkpoint = data / "cleaner-offset-checkpoint"
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return "compacted 0 33" in lines

    await_true(cleaned, "the cleaner did not reach the active segment of `compacted`")


def _transactional(cluster: Cluster, servers: str) -> None:
    """Committed, aborted, committed with a group's offsets, and open at the stop with records, offsets and a snapshot."""
    make_topic(cluster, "ledger", 2, configs={"segment.ms": "60000"})
    make_topic(cluster, "idempotent", 1, configs={"segment.ms": "60000"})
    clerk = transactional_producer(servers, "clerk")
    for n, end in enumerate((clerk.commit_transaction, clerk.abort_transaction, clerk.commit_transaction)):
        clerk.begin_transaction()
        records = [Record(b"clerk", b"entry %d.%d" % (n, p), START_MS + 2 * n * MINUTE_MS, None, p) for p in (0, 1)]
        send_with(clerk, "ledger", records)
        groups.offsets_in(clerk, servers, "ledger-readers", "codec-none", 10 * (n + 1))
        end(30)
    stayer = transactional_producer(servers, "stayer")
    stayer.begin_transaction()
    send_with(stayer, "ledger", [Record(b"stayer", b"open %d" % n, START_MS, None, 0) for n in range(3)])
    groups.offsets_in(stayer, servers, "pending-readers", "codec-none", 7)
    send(servers, "ledger", [Record(b"plain", b"after the open transaction", START_MS + 9 * MINUTE_MS)])
    writer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 3})
    now_ms = time.time_ns() // 1_000_000  # a producer is forgotten a day after its last record's time
    for n in range(4):
        send_with(writer, "idempotent", [Record(None, b"sequence %d" % n, now_ms + 2 * n * MINUTE_MS)])


def _settings(cluster: Cluster) -> None:
    alter_configs(cluster, ConfigResourceType.TOPIC, "odd", [("max.message.bytes", SET, "2000000")])
    alter_configs(cluster, ConfigResourceType.BROKER, "", [("log.segment.delete.delay.ms", SET, "59000")])
    alter_configs(cluster, ConfigResourceType.BROKER, "1", [("num.io.threads", SET, "9")])
    alter_configs(cluster, ConfigResourceType.GROUP, "sharers", [("share.auto.offset.reset", SET, "earliest")])
    metrics = [("interval.ms", SET, "60000"), ("metrics", SET, "org.apache.kafka.producer.")]
    alter_configs(cluster, ConfigResourceType.CLIENT_METRICS, "watched", metrics)


def _await_snapshot(data: Path) -> None:
    folder = data / "__cluster_metadata-0"
    await_true(lambda: len(list(folder.glob("*.checkpoint"))) > 1, "the node wrote no metadata snapshot")
