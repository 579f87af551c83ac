"""A life for a server that leaves something of everything on its disk, written by real clients."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.interop.observation import read_all
from tests.interop.settled import await_coordinator, await_settled

TIMEOUT_S = 20.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "readers"
TRANSACTIONAL_GROUP = "transactional"
GROUPS = (GROUP, TRANSACTIONAL_GROUP)
PROPERTIES = {
    "offsets.topic.num.partitions": "2",  # 50 and 50 would only cost time
    "transaction.state.log.num.partitions": "2",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",  # some records are from 2023
    "log.cleaner.backoff.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
}
TOPICS = {
    "codecs": (5, {}),
    "segments": (1, {"segment.index.bytes": "96", "index.interval.bytes": "1024"}),  # 8 entries, then a new segment
    "appended": (1, {"message.timestamp.type": "LogAppendTime"}),
    "recompressed": (1, {"compression.type": "zstd"}),
    "compacted": (1, {"cleanup.policy": "compact", "max.message.bytes": "200000"}),
    "trimmed": (2, {"retention.ms": "-1"}),
    "empty": (3, {}),
    "transactions": (1, {"segment.index.bytes": "96", "index.interval.bytes": "1024"}),
}


def live(bootstrap_servers: str, *, transactions: bool, run: int = 0) -> None:
    """One run of this life; the first one makes the topics, and every run adds to them."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    if run == 0:
        _settle(admin.create_topics([NewTopic(n, p, 1, config=c) for n, (p, c) in TOPICS.items()]))
    _settle(admin.create_topics([NewTopic("gone", 1, 1)]))
    _produce(bootstrap_servers, run)
    _trim(admin, run)
    _configure(admin, run)
    _settle(admin.delete_topics(["gone"]))  # and both servers write down what DeleteRecords did, before a kill
    if transactions:
        _transact(bootstrap_servers, run)
    _commit(bootstrap_servers, run)


def _produce(bootstrap_servers: str, run: int) -> None:
    for number, codec in enumerate(CODECS):
        producer = _producer(bootstrap_servers, {"compression.type": codec, "batch.num.messages": 50})
        for n in range(100):
            headers = [("run", str(run).encode()), ("empty", b""), ("null", None)] if n % 3 else None
            value = None if n % 10 == 9 else f"{codec} {run} {n} ".encode() * (n % 7)
            producer.produce("codecs", value, key=f"{n}" if n % 2 else None, headers=headers, partition=number)
        _flush(producer)
    producer = _producer(bootstrap_servers, {"batch.num.messages": 20})
    for n in range(400):
        producer.produce("segments", b"%06d" % n * 25, key=b"%d" % n, partition=0, timestamp=1_700_000_000_000 + n * 10)
    for n in range(50):
        producer.produce("appended", b"%d" % n, timestamp=1_600_000_000_000 + n)
        producer.produce("recompressed", b"again and again " * 50)
        producer.produce("compacted", b"%d %d" % (run, n), key=b"%d" % (n % 5))
        producer.produce("trimmed", b"%d" % n, partition=n % 2)
    _flush(producer)


def _transact(bootstrap_servers: str, run: int) -> None:
    """Committed and aborted ones, with offsets of a group in them."""
    producer = _producer(bootstrap_servers, {"transactional.id": "transactor", "batch.num.messages": 20})
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": TRANSACTIONAL_GROUP})
    producer.init_transactions(TIMEOUT_S)
    for number in range(6):
        producer.begin_transaction()
        for n in range(60):
            producer.produce("transactions", b"%d %d %d" % (run, number, n) * 5, partition=0)
        _flush(producer)
        offsets = [TopicPartition("codecs", number % 5, 100 * run + number)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(TIMEOUT_S)
    consumer.close()


def leave_a_transaction_open(bootstrap_servers: str) -> None:
    """Whoever reads committed records only gets no further than its first one."""
    producer = _producer(bootstrap_servers, {"transactional.id": "dangler", "transaction.timeout.ms": 900_000})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("transactions", b"undecided", partition=0)
    _flush(producer)
    later = _producer(bootstrap_servers, {})
    later.produce("transactions", b"behind it", partition=0)
    _flush(later)


def compact(bootstrap_servers: str) -> None:
    """Let Apache Kafka's cleaner leave its gaps, then keep it from going on while others look."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    eager = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.index.bytes": "96"}
    _settle(admin.create_topics([NewTopic("cleaned", 1, 1, config={**eager, "index.interval.bytes": "256"})]))
    producer = _producer(bootstrap_servers, {"batch.num.messages": 10})
    for n in range(500):
        producer.produce("cleaned", None if n % 50 == 49 else b"%d" % n * 10, key=b"%d" % (n * n % 29))
    _flush(producer)
    deadline = time.monotonic() + 60
    while len(read_all(bootstrap_servers, [("cleaned", 0)])["cleaned", 0]) > 250:
        if time.monotonic() > deadline:
            raise TimeoutError("the cleaner did nothing")
    stop = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    _settle(
        admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, "cleaned", incremental_configs=[stop])])
    )
    await_settled(
        bootstrap_servers
    )  # the broker ends a round of the cleaner that had begun before it takes the setting


def _trim(admin: AdminClient, run: int) -> None:
    _settle(admin.delete_records([TopicPartition("trimmed", 0, 5 + run * 20)], request_timeout=TIMEOUT_S))


def _configure(admin: AdminClient, run: int) -> None:
    def put(name: str, value: str) -> ConfigEntry:
        return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)

    _settle(
        admin.incremental_alter_configs(
            [
                ConfigResource(ResourceType.TOPIC, "empty", incremental_configs=[put("retention.ms", str(1000 + run))]),
                ConfigResource(ResourceType.BROKER, "1", incremental_configs=[put("log.cleaner.threads", "2")]),
            ]
        )
    )


def _commit(bootstrap_servers: str, run: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": GROUP})
    wanted = [TopicPartition("codecs", number, 10 * number + run, metadata=f"run {run}") for number in range(5)]
    await_coordinator(bootstrap_servers, GROUP)
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def _producer(bootstrap_servers: str, config: dict[str, object]) -> Producer:
    return Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, **config})


def _flush(producer: Producer) -> None:
    if producer.flush(TIMEOUT_S):
        raise TimeoutError("not everything was acknowledged")


def _settle(futures: dict[object, object]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)  # type: ignore[attr-defined]
