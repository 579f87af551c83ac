"""Consuming as each client does it: seek, offsets by time, assign and subscribe, pause and resume, watermarks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PyTopicPartition

from tests.interop.messages import T0
from tests.interop.observation import read_all
from tests.support.apache_kafka import ApacheKafka

pytestmark = pytest.mark.interop
TIMEOUT_S = 60
Names = Callable[[str], str]


@pytest.fixture
def topic(server: ApacheKafka, new_name: Names) -> str:
    """Two partitions of 50 records, a second apart."""
    name = new_name("consume")
    create(server, name)
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number in range(100):
        producer.produce(name, b"%d" % number, partition=number % 2, timestamp=T0 + number // 2 * 1000)
    assert producer.flush(TIMEOUT_S) == 0
    return name


def create(server: ApacheKafka, name: str, partitions: int = 2, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(TIMEOUT_S)


def next_offset(consumer: Consumer) -> int:
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error() is None, message.error()
    return int(message.offset())


def test_confluent_kafka(server: ApacheKafka, topic: str, new_name: Names) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": new_name("g")})
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert consumer.get_watermark_offsets(at, TIMEOUT_S) == (0, 50)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert next_offset(consumer) == 0
    consumer.seek(TopicPartition(topic, 0, 42))
    assert next_offset(consumer) == 42
    consumer.pause([at])
    assert consumer.poll(0.3) is None
    consumer.resume([at])
    assert next_offset(consumer) == 43
    wanted = [TopicPartition(topic, 0, T0 + 7001), TopicPartition(topic, 1, T0 + 10**9), TopicPartition(topic, 0, 0)]
    found = [consumer.offsets_for_times([each], TIMEOUT_S)[0].offset for each in wanted]
    assert found == [8, OFFSET_END, 0]
    consumer.incremental_assign([TopicPartition(topic, 1, 49)])
    assert sorted(each.partition for each in consumer.assignment()) == [0, 1]
    consumer.incremental_unassign([at])
    assert next_offset(consumer) == 49
    assert [each.offset for each in consumer.position([other])] == [50]
    consumer.assign([TopicPartition(topic, 1, 10**6)])  # beyond the end: the reset policy (latest) steps in
    assert consumer.poll(0.5) is None
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic"])
def test_confluent_kafka_groups(server: ApacheKafka, topic: str, new_name: Names, protocol: str) -> None:
    group = new_name("group")
    config = {
        "bootstrap.servers": server.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "group.protocol": protocol,
    }  # fmt: skip
    consumer = Consumer(config)
    consumer.subscribe([topic])
    first = [m for m in consumer.consume(30, TIMEOUT_S) if m.error() is None]
    assert len(first) == 30
    consumer.commit(asynchronous=False)
    consumer.close()
    heir = Consumer(config)
    heir.subscribe([topic])
    rest = [m for m in heir.consume(70, TIMEOUT_S) if m.error() is None]
    heir.close()
    seen = sorted((m.partition(), m.offset()) for m in [*first, *rest])
    assert seen == [(partition, offset) for partition in (0, 1) for offset in range(50)]


def test_confluent_kafka_pattern_and_list(server: ApacheKafka, topic: str, new_name: Names) -> None:
    consumer = Consumer({
        "bootstrap.servers": server.bootstrap_servers, "group.id": new_name("pattern"), "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe([f"^{topic}$"])
    assert next_offset(consumer) == 0
    assert sorted(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == [0, 1]
    consumer.close()


def test_aiokafka(server: ApacheKafka, topic: str, new_name: Names) -> None:
    async def run() -> None:
        at = AioTopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=server.bootstrap_servers) as consumer:
            consumer.assign([at])
            assert await consumer.beginning_offsets([at]) == {at: 0}
            assert await consumer.end_offsets([at]) == {at: 50}
            found = await consumer.offsets_for_times({at: T0 + 7001})
            assert found[at] is not None
            assert (found[at].offset, found[at].timestamp) == (8, T0 + 8000)
            consumer.seek(at, 42)
            assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).offset == 42
            consumer.pause(at)
            assert await consumer.getmany(at, timeout_ms=300) == {}
            consumer.resume(at)
            assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).offset == 43
            await consumer.seek_to_end(at)
            assert await consumer.position(at) == 50
            assert topic in await consumer.topics()
        member = AIOKafkaConsumer(
            topic, bootstrap_servers=server.bootstrap_servers, group_id=new_name("aio"), auto_offset_reset="earliest"
        )
        async with member:
            seen = {((m := await asyncio.wait_for(member.getone(), TIMEOUT_S)).partition, m.offset) for _ in range(100)}
            await member.commit()
            assert await member.committed(at) == 50
        assert len(seen) == 100

    asyncio.run(run())


def test_kafka_python(server: ApacheKafka, topic: str, new_name: Names) -> None:
    at = PyTopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap_servers, consumer_timeout_ms=TIMEOUT_S * 1000)
    consumer.assign([at])
    assert consumer.beginning_offsets([at]) == {at: 0}
    assert consumer.end_offsets([at]) == {at: 50}
    found = consumer.offsets_for_times({at: T0 + 7001})[at]
    assert (found.offset, found.timestamp) == (8, T0 + 8000)
    consumer.seek(at, 42)
    assert next(consumer).offset == 42
    assert topic in consumer.topics()
    consumer.close()
    member = KafkaConsumer(
        topic, bootstrap_servers=server.bootstrap_servers, group_id=new_name("py"), auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_S * 1000, enable_auto_commit=False,
    )  # fmt: skip
    seen = {((m := next(member)).partition, m.offset) for _ in range(100)}
    assert len(seen) == 100
    member.commit()
    assert member.committed(at) == 50
    member.close()


def test_kcat(server: ApacheKafka, topic: str, kcat_tool: Callable[..., object]) -> None:
    def lines(*args: str) -> list[str]:
        done = kcat_tool("-b", server.bootstrap_servers, *args)
        assert done.returncode == 0, done.stderr  # type: ignore[attr-defined]
        return done.stdout.splitlines()  # type: ignore[attr-defined,no-any-return]

    assert f'  topic "{topic}" with 2 partitions:' in lines("-L", "-t", topic)
    assert lines("-C", "-t", topic, "-p", "0", "-o", "47", "-e", "-q", "-f", "%o %s %T\n") == [
        f"{n} {n * 2} {T0 + n * 1000}" for n in (47, 48, 49)
    ]
    assert lines("-C", "-t", topic, "-p", "1", "-o", "-2", "-e", "-q", "-f", "%o\n") == ["48", "49"]
    assert lines("-Q", "-t", f"{topic}:0:{T0 + 7001}") == [f"{topic} [0] offset 8"]
    window = ("-o", f"s@{T0 + 5000}", "-o", f"e@{T0 + 8000}")
    assert lines("-C", "-t", topic, "-p", "0", *window, "-q", "-f", "%o\n") == ["5", "6", "7"]


def test_log_append_time(server: ApacheKafka, new_name: Names) -> None:
    """The broker's clock, for all records of a batch, and the producer is told."""
    topic = new_name("append-time")
    create(server, topic, 1, message_timestamp_type="LogAppendTime")
    told: list[tuple[int, int]] = []
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "compression.type": "lz4"})
    for _ in range(5):
        producer.produce(topic, b"x", timestamp=1_500_000_000_000, on_delivery=lambda _, m: told.append(m.timestamp()))
    assert producer.flush(TIMEOUT_S) == 0
    found = [r.timestamp for r in read_all(server.bootstrap_servers, [(topic, 0)])[topic, 0]]
    assert {kind for kind, _ in found} == {2}
    assert min(at for _, at in found) > T0
    assert told == found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_of_the_topic(server: ApacheKafka, new_name: Names, codec: str) -> None:
    """The log holds the topic's codec whatever the producer sent; the records stay the same."""
    topic = new_name("recompressed")
    create(server, topic, 1, compression_type="uncompressed" if codec == "none" else codec)
    for sent in ("none", "gzip", "zstd"):
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "compression.type": sent})
        for number in range(10):
            producer.produce(topic, b"again and again " * 20, key=b"%d" % number, headers=[("h", b"1")])
        assert producer.flush(TIMEOUT_S) == 0
    data = (server.data_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()
    expected = ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    position, batches = 0, 0
    while position < len(data):
        assert int.from_bytes(data[position + 21 : position + 23], "big") & 7 == expected
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        batches += 1
    assert batches >= 3
    found = read_all(server.bootstrap_servers, [(topic, 0)])[topic, 0]
    assert [(r.key, r.value, r.headers) for r in found] == [
        (b"%d" % number, b"again and again " * 20, (("h", b"1"),)) for _ in range(3) for number in range(10)
    ]


def test_too_large(server: ApacheKafka, new_name: Names) -> None:
    topic = new_name("small")
    create(server, topic, 1, max_message_bytes="1000")
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    producer.produce(topic, bytes(2000), on_delivery=lambda error, _: failed.append(error))
    producer.produce(topic, bytes(100), on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failed[0] is not None
    assert failed[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_idempotent_producer_is_told_no_lies(server: ApacheKafka, new_name: Names) -> None:
    """5 requests in flight, small batches: offsets in the order of sending, no gap and no duplicate."""
    topic = new_name("idempotent")
    create(server, topic, 1)
    told: list[int] = []
    producer = Producer({
        "bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True, "batch.num.messages": 7, "linger.ms": 0,
    })  # fmt: skip
    for number in range(2000):
        producer.produce(topic, b"%d" % number, on_delivery=lambda _, m: told.append(m.offset()))
    assert producer.flush(TIMEOUT_S) == 0
    assert told == list(range(2000))
    found = read_all(server.bootstrap_servers, [(topic, 0)])[topic, 0]
    assert [r.value for r in found] == [b"%d" % number for number in range(2000)]


def test_auto_creation(server: ApacheKafka, new_name: Names) -> None:
    """By a producer's metadata; a consumer of librdkafka asks not to create."""
    topic = new_name("auto")
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    producer.produce(topic, b"first")
    assert producer.flush(TIMEOUT_S) == 0
    assert sorted(producer.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == [0, 1]
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "allow.auto.create.topics": False})
    absent = new_name("absent")
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": new_name("g")})
    consumer.assign([TopicPartition(absent, 0, 0)])
    assert consumer.poll(0.5) is None
    consumer.close()
    assert absent not in admin.list_topics(timeout=TIMEOUT_S).topics
