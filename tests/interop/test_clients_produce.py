"""Every client writes with every codec and every acks what it can, reads it back, and the other clients agree."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyTopicPartition
from kafka import codec as kafka_python_codec

from tests.interop.messages import ACKS, CODECS, LARGE, SENT, Sent
from tests.interop.observation import SeenRecord, read_all
from tests.interop.ottla_server import OttlaServer

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("acks", ACKS), pytest.mark.parametrize("codec", CODECS)]

Names = Callable[[str], str]
Result = subprocess.CompletedProcess[str]
TIMEOUT_S = 20
MAX_REQUEST = 2_000_000


def as_sent(records: list[SeenRecord]) -> list[Sent]:
    return [Sent(r.key, r.value, tuple((n, v or b"") for n, v in r.headers), r.timestamp[1]) for r in records]


def with_librdkafka(server: OttlaServer, topic: str) -> list[Sent]:
    """What another client sees; it waits for what acks=0 may not have written yet."""
    return as_sent(read_all(server.bootstrap_servers, [(topic, 0)], at_least=len(SENT))[topic, 0])


def test_confluent_kafka(ottla_server: OttlaServer, new_name: Names, codec: str, acks: object) -> None:
    topic = new_name("confluent")
    producer = Producer({
        "bootstrap.servers": ottla_server.bootstrap_servers, "compression.type": codec, "acks": acks,
        "message.max.bytes": MAX_REQUEST, "linger.ms": 0,
    })  # fmt: skip
    failed: list[object] = []
    for sent in SENT:
        producer.produce(
            topic, sent.value, sent.key, partition=0, timestamp=sent.timestamp, headers=list(sent.headers),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    assert with_librdkafka(ottla_server, topic) == list(SENT)


def test_aiokafka(ottla_server: OttlaServer, new_name: Names, codec: str, acks: int | str) -> None:
    topic = new_name("aiokafka")

    async def write_and_read() -> list[Sent]:
        producer = AIOKafkaProducer(
            bootstrap_servers=ottla_server.bootstrap_servers,
            compression_type=None if codec == "none" else codec, acks=acks, max_request_size=MAX_REQUEST,
        )  # fmt: skip
        async with producer:
            for sent in SENT:
                await producer.send_and_wait(
                    topic, sent.value, sent.key, partition=0, timestamp_ms=sent.timestamp, headers=list(sent.headers)
                )
        consumer = AIOKafkaConsumer(bootstrap_servers=ottla_server.bootstrap_servers)
        async with consumer:
            at = AioTopicPartition(topic, 0)
            consumer.assign([at])
            await consumer.seek_to_beginning(at)
            found = [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in SENT]
        return [Sent(m.key, m.value, tuple(m.headers), m.timestamp) for m in found]

    assert asyncio.run(write_and_read()) == list(SENT)
    assert with_librdkafka(ottla_server, topic) == list(SENT)


def test_kafka_python(ottla_server: OttlaServer, new_name: Names, codec: str, acks: int | str) -> None:
    if codec != "none" and not getattr(kafka_python_codec, f"has_{codec}")():
        pytest.skip(f"kafka-python needs another package for {codec}")
    topic = new_name("kafka-python")
    producer = KafkaProducer(
        bootstrap_servers=ottla_server.bootstrap_servers, max_request_size=MAX_REQUEST,
        compression_type=None if codec == "none" else codec, acks=acks, enable_idempotence=acks == "all",
    )  # fmt: skip
    for sent in SENT:
        producer.send(topic, sent.value, sent.key, list(sent.headers), 0, sent.timestamp).get(TIMEOUT_S)
    producer.close(TIMEOUT_S)
    consumer = KafkaConsumer(bootstrap_servers=ottla_server.bootstrap_servers, consumer_timeout_ms=TIMEOUT_S * 1000)
    consumer.assign([PyTopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer) for _ in SENT]
    consumer.close()
    assert [Sent(m.key, m.value, tuple(m.headers), m.timestamp) for m in found] == list(SENT)
    assert with_librdkafka(ottla_server, topic) == list(SENT)


def test_kcat(
    ottla_server: OttlaServer, new_name: Names, kcat_tool: Callable[..., Result], codec: str, acks: object
) -> None:
    """kcat has no timestamps of its own to give, and a value as large as this only from a file."""
    topic = new_name("kcat")
    where = ("-b", ottla_server.bootstrap_servers, "-t", topic, "-p", "0")
    how = ("-z", codec, "-X", f"acks={acks}", "-X", f"message.max.bytes={MAX_REQUEST}")
    large = LARGE.hex()[: len(LARGE)]
    done = kcat_tool(
        "-P", *where, *how, "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", input="key:value\n:empty key\ntombstone:\n"
    )
    assert done.returncode == 0, done.stderr
    done = kcat_tool("-P", *where, *how, "-D", "~", input=large)
    assert done.returncode == 0, done.stderr
    done = kcat_tool("-C", *where, "-o", "beginning", "-c", "4", "-f", "%o %k %S %h\n")
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    assert [(line[0], line[1], line[-1]) for line in lines[:3]] == [
        ("0", "key", "a=1,b=2"), ("1", "", "a=1,b=2"), ("2", "tombstone", "a=1,b=2"),
    ]  # fmt: skip
    found = read_all(ottla_server.bootstrap_servers, [(topic, 0)], at_least=4)[topic, 0]
    assert [r.value for r in found] == [b"value", b"empty key", None, large.encode()]


def test_java(
    ottla_server: OttlaServer, new_name: Names, kafka_tool: Callable[..., Result], codec: str, acks: object
) -> None:
    """The console tools are the Java clients; a line can carry all but a timestamp."""
    topic = new_name("java")
    where = ("--bootstrap-server", ottla_server.bootstrap_servers, "--topic", topic)
    large = LARGE.hex()[: len(LARGE)]
    lines = [
        ("a:1,b:", "key", "value"),
        ("NULL", "NULL", "no key"),
        ("NULL", "", ""),
        ("a:2", "tombstone", "NULL"),
        ("NULL", "large", large),
    ]
    done = kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer", *where, "--compression-codec", codec,
        "--command-property", f"acks={acks}", "--command-property", f"max.request.size={MAX_REQUEST}",
        "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
        "--reader-property", "null.marker=NULL", input="".join("\t".join(line) + "\n" for line in lines),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr, done.stderr
    parts = [(topic, 0), (topic, 1)]
    seen = read_all(ottla_server.bootstrap_servers, parts, at_least=len(lines))
    expected = [
        (b"key", b"value", (("a", b"1"), ("b", b""))), (None, b"no key", ()), (b"", b"", ()),
        (b"tombstone", None, (("a", b"2"),)), (b"large", large.encode(), ()),
    ]  # fmt: skip
    found = [(r.key, r.value, r.headers) for at in parts for r in seen[at]]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    done = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--from-beginning", "--max-messages", str(len(lines)),
        "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
        "--formatter-property", "null.literal=NULL", timeout=40,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == sorted(
        "\t".join((headers if headers != "NULL" else "NO_HEADERS", key, value)) for headers, key, value in lines
    )
