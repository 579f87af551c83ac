"""A single node that was killed: no clean-shutdown marker, no snapshots at the end, nothing synced that a stop would sync."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from ottla.client.groups import commit_offsets
from tests.robustness.server_process import ServerProcess
from tests.upgrade import observations as observe
from tests.upgrade.observations import Json
from tests.upgrade.rows import START_MS, Record, send, send_with
from tests.upgrade.scenes.steps import SMALL, make_topic, transactional_producer

MINUTE_MS = 60_000


def record(folder: Path, work: Path) -> Json:
    server = ServerProcess(work, properties=SMALL, log_dirs=[folder / "data"])
    with server:
        servers = server.bootstrap_servers
        with observe.connected(servers) as cluster:
            make_topic(cluster, "plain", 2)
            make_topic(cluster, "timed", 1, {"segment.ms": "60000"})
            make_topic(cluster, "ledger", 1, {"segment.ms": "60000"})
            send(servers, "plain", [Record(b"%d" % n, b"value %d" % n, START_MS + n, [], n % 2) for n in range(30)])
            writer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 3})
            for n in range(5):
                send_with(writer, "timed", [Record(None, b"minute %d" % n, START_MS + 2 * n * MINUTE_MS)])
            clerk = transactional_producer(servers, "clerk")
            for n, end in enumerate((clerk.commit_transaction, clerk.abort_transaction)):
                clerk.begin_transaction()
                send_with(clerk, "ledger", [Record(b"clerk", b"entry %d" % n, START_MS + 2 * n * MINUTE_MS)])
                end(30)
            clerk.begin_transaction()
            send_with(clerk, "ledger", [Record(b"clerk", b"never ended", START_MS + 6 * MINUTE_MS)])
            commit_offsets(cluster, "simple", {("plain", 0): 5, ("plain", 1): 15})
            topics = observe.topics(cluster)
            manifest = {
                "properties": SMALL,
                "cluster_id": observe.cluster_id(cluster),
                "topics": topics,
                "records": observe.records(servers, observe.places(topics)),
                "producers": observe.producers(cluster, observe.places(topics)),
                "transactions": observe.transactions(cluster),
                "groups": observe.groups(cluster),
            }
            server.kill()
    assert not (folder / "data" / ".kafka_cleanshutdown").exists()
    return manifest
