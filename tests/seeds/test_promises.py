"""What the founding texts say of a log, statement by statement, with real clients (docs/seeds.md has the whole table).

Only what no other test shows stands here.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from ottla.cli.commands import ottla
from ottla.testing import Broker

Pairs = Sequence[tuple[str | None, str]]
SOON = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "50",
}
# The table of the course: before, and what a compacted log must keep of it.
BEFORE = [("k1", "v2"), ("k2", "v3"), ("k1", "v4"), ("k3", "v5"), ("k4", "v6"), ("k5", "v7"), ("k5", "v8"), ("k2", "v9"), ("k6", "v10")]  # fmt: skip
AFTER = [(2, "k1", "v4"), (3, "k3", "v5"), (4, "k4", "v6"), (6, "k5", "v8"), (7, "k2", "v9"), (8, "k6", "v10")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def servers(data: Path) -> Iterator[str]:
    with Broker(directory=data, properties=SOON) as broker:
        yield broker.bootstrap_servers


def create(servers: str, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(30)


def write(servers: str, topic: str, pairs: Pairs, *, now_ms: int = 0, **settings: object) -> list[int]:
    """The partition of each."""
    placed: list[int] = []
    producer = Producer({"bootstrap.servers": servers, **settings})  # type: ignore[dict-item]
    for number, (key, value) in enumerate(pairs):
        more = {"timestamp": now_ms + number * 1000} if now_ms else {}
        producer.produce(topic, value, key, on_delivery=lambda _, sent: placed.append(sent.partition()), **more)
        producer.flush(30)
    assert len(placed) == len(pairs)
    return placed


def read(servers: str, topic: str) -> list[tuple[int, str | None, str]]:
    """Everything from the start: offset, key, value."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[tuple[int, str | None, str]] = []
    deadline = time.monotonic() + 30
    while consumer.position([TopicPartition(topic, 0)])[0].offset < end and start < end:
        assert time.monotonic() < deadline
        for message in consumer.consume(500, 0.2):
            key = message.key()
            found.append((message.offset() or 0, key.decode() if key else None, (message.value() or b"").decode()))
    consumer.close()
    return found


def eventually(look: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_all_subscribers_see_one_sequence_and_come_to_one_state(servers: str) -> None:
    """The hash table of chief executives: replicas that replay one log agree, whatever client they use."""
    create(servers, "ceo")
    puts = [("Microsoft", "Bill Gates"), ("Microsoft", "Steve Balmer"), ("Apple", "Jobs"), ("Microsoft", "Satya Nadella")]  # fmt: skip
    write(servers, "ceo", puts)
    librdkafka = [(key, value) for _, key, value in read(servers, "ceo")]
    python = kafka.KafkaConsumer("ceo", bootstrap_servers=servers, auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=20000)  # fmt: skip
    by_kafka_python = [(m.key.decode(), m.value.decode()) for _, m in zip(range(4), python, strict=False)]
    python.close()

    async def by_aiokafka() -> list[tuple[str, str]]:
        async with AIOKafkaConsumer("ceo", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            messages = [await asyncio.wait_for(consumer.getone(), 20) for _ in range(4)]
        return [(m.key.decode(), m.value.decode()) for m in messages]

    assert librdkafka == by_kafka_python == asyncio.run(by_aiokafka()) == puts
    assert dict(librdkafka) == {"Microsoft": "Satya Nadella", "Apple": "Jobs"}


def test_a_log_of_births_and_deaths_tells_the_population_at_any_time(servers: str) -> None:
    """The census: a batch counts now; a log is asked about any moment, also a past one."""
    create(servers, "people", retention_ms="-1")
    changes = [("ann", "1"), ("bob", "1"), ("eve", "1"), ("ann", "-1"), ("joe", "1")]
    write(servers, "people", changes, now_ms=1_000_000_000_000)
    for second, population in [(0, 1), (2, 3), (3, 2), (4, 3)]:
        at = f"epoch_ms(timestamp) <= {1_000_000_000_000 + second * 1000}"
        query = f"select sum(value::int) as n from people where {at}"
        done = CliRunner().invoke(ottla, ["sql", query, "-b", servers, "-o", "json"])
        assert done.exit_code == 0, done.output
        assert f'"n": {population}' in done.output, done.output


def test_a_compacted_topic_keeps_the_newest_of_each_key(servers: str) -> None:
    create(servers, "table", cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    write(servers, "table", BEFORE)
    time.sleep(0.1)  # past segment.ms: the next record begins a new segment
    write(servers, "table", [("last", "of the open segment, which is never compacted")])
    eventually(lambda: read(servers, "table")[:-1] == AFTER)


@pytest.mark.parametrize("limit", [{"retention_ms": "100"}, {"retention_bytes": "150"}], ids=["time", "size"])
def test_retention(servers: str, limit: dict[str, str]) -> None:
    """Whole segments go: what is left begins at a later offset."""
    name = f"kept-{next(iter(limit))}"
    create(servers, name, segment_ms="50", **limit)
    for number in range(3):
        write(servers, name, [(None, f"{number}" + "x" * 100)])
        time.sleep(0.1)  # past segment.ms: the next record begins a new segment

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    eventually(lambda: consumer.get_watermark_offsets(TopicPartition(name, 0), 30)[0] > 0)
    consumer.close()


def test_defaults_of_retention(servers: str) -> None:
    create(servers, "defaults")
    resource = ConfigResource(ResourceType.TOPIC, "defaults")
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.describe_configs([resource])[resource].result(30)
    week = str(7 * 24 * 3600 * 1000)
    assert (found["retention.ms"].value, found["retention.bytes"].value) == (week, "-1")
    assert found["cleanup.policy"].value == "delete"


def test_what_is_written_is_never_changed(servers: str, data: Path) -> None:
    create(servers, "stone")
    write(servers, "stone", [("a", "1")])
    segment = next(data.rglob("stone-0/*.log"))
    before = segment.read_bytes()
    write(servers, "stone", [("a", "2"), ("b", "3")])
    assert segment.read_bytes().startswith(before)
    assert len(segment.read_bytes()) > len(before) > 0


def test_a_key_has_one_partition_whatever_client_writes_it(servers: str) -> None:
    """hash(key) % partitions: kafka-python, librdkafka as Java does it, and both command lines."""
    create(servers, "keyed", 5)
    keys = [f"user-{number}" for number in range(12)]
    wanted = write(servers, "keyed", [(key, "librdkafka") for key in keys], partitioner="murmur2_random")
    assert len(set(wanted)) > 2, "keys are spread"
    python = kafka.KafkaProducer(bootstrap_servers=servers)
    sent = [python.send("keyed", b"python", key.encode()).get(30).partition for key in keys]
    python.close()
    assert sent == wanted
    lines = "".join(f"{key}:ottla\n" for key in keys)
    assert CliRunner().invoke(ottla, ["produce", "keyed", "-K", ":", "-b", servers], input=lines).exit_code == 0
    done = CliRunner().invoke(ottla, ["consume", "keyed", "-e", "-f", "%p %k %v\n", "-b", servers])
    seen = {key: partition for partition, key, value in map(str.split, done.output.splitlines()) if value == "ottla"}
    assert [int(seen[key]) for key in keys] == wanted


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_more_members_than_partitions_and_one_takes_over(servers: str, protocol: str) -> None:
    """Each partition has one reader in a group; who is too many waits, and takes over from one that goes."""
    topic = f"two-{protocol}"
    create(servers, topic, 2)
    own = {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest", "group.protocol": protocol}
    members = [Consumer(own) for _ in range(3)]  # type: ignore[arg-type]
    for member in members:
        member.subscribe([topic])
    held: list[int] = []

    def settled() -> bool:
        for member in members:
            member.poll(0.05)
        held[:] = [len(member.assignment()) for member in members]
        owned = sorted(partition.partition for member in members for partition in member.assignment())
        return owned == [0, 1] and max(held) == 1

    eventually(settled)
    assert sorted(held) == [0, 1, 1]
    members.pop(held.index(1)).close()
    eventually(settled)
    assert held == [1, 1]
    for member in members:
        member.close()


def test_a_message_may_be_large(servers: str) -> None:
    create(servers, "large", max_message_bytes="30000000")
    value = json.dumps({"body": "x" * 20_000_000})
    write(servers, "large", [("k", value)], **{"message.max.bytes": 30_000_000})
    assert read(servers, "large") == [(0, "k", value)]


def test_a_viewer_resumes_where_they_left_off(servers: str) -> None:
    """The case of the film service: positions keyed by user over many partitions, the newest of each user counts."""
    create(servers, "positions", 36)
    watched = [(f"user-{number % 10}", str(number)) for number in range(50)]
    placed = write(servers, "positions", watched)
    assert len(set(placed)) > 3, "spread"
    assert len(set(zip((key for key, _ in watched), placed, strict=True))) == 10, "each user in one partition"
    query = 'select key, arg_max(value, "offset") as at from positions group by key order by key'
    done = CliRunner().invoke(ottla, ["sql", query, "-b", servers, "-o", "json"])
    assert done.exit_code == 0, done.output
    assert re.findall(r'"at": "(\d+)"', done.output) == [str(40 + user) for user in range(10)], done.output
