"""The same batches, byte for byte, for both servers: then their files can be compared byte for byte."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.records import SimpleRecord, build_batch
from tests.interop.producer_session import produce
from tests.interop.settled import await_led

TOPIC = "raw"
EMPTY_TOPIC = "raw-empty"
CONFIG = {"segment.index.bytes": "96", "index.interval.bytes": "512"}
START_MS = time.time_ns() // 1_000_000 - 60_000
PRODUCER_ID = 4711


def batches() -> list[bytes]:
    """All codecs, with and without a producer, timestamps that jump back, one larger than an index interval."""
    made = []
    sequence = 0
    for n in range(60):
        count = n % 7 + 1
        at = START_MS + n * 100 - (450 if n % 9 == 8 else 0)
        value = b"%d " % n * (400 if n % 13 == 12 else 20)
        records = [
            SimpleRecord(at + i, b"k%d" % i if i % 2 else None, value, (("n", b"%d" % n),)) for i in range(count)
        ]
        identity = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": sequence} if n % 2 else {}
        sequence += count if n % 2 else 0
        made.append(bytes(build_batch(records, compression=n % 5, **identity)))
    return made


def write(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for name in (TOPIC, EMPTY_TOPIC):
        admin.create_topics([NewTopic(name, 1, 1, config=CONFIG)])[name].result(20)
        await_led(bootstrap_servers, name)
    port = int(bootstrap_servers.rpartition(":")[2])
    for batch in batches():
        answer = produce(port, TOPIC, batch)
        if answer.error_code:
            raise RuntimeError(f"produce: {answer}")
