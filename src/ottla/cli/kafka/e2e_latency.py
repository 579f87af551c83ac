"""kafka-e2e-latency: from a producer's send to a consumer's receipt, one record at a time."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from ottla.cli.kafka.admin import REFUSED, command_properties_of
from ottla.cli.kafka.client_properties import made_client
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options

PARSER = OptionParser((
    Option("bootstrap-server", "String: bootstrap-server", "REQUIRED: brokers, as HOST:PORT,..."),
    Option("topic", "String: topic-name", "REQUIRED: the topic to use."),
    Option("num-records", "Integer: count", "REQUIRED: number of records."),
    Option("producer-acks", "String: producer-acks", "REQUIRED: 1 or all."),
    Option("record-size", "Integer: bytes", "REQUIRED: bytes of each record."),
    Option("command-config", "[String: config-file]", "A file with the clients' properties."),
    Option("record-key-size", "[Integer: bytes]", "Bytes of each key.", "0"),
    Option("num-headers", "[Integer: count]", "Headers of each record.", "0"),
    Option("record-header-key-size", "[Integer: bytes]", "Bytes of a header's key.", "0"),
    Option("record-header-size", "[Integer: bytes]", "Bytes of a header's value; -1 is null.", "0"),
))  # fmt: skip
_REQUIRED = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
_OPTIONAL = ("record-key-size", "num-headers", "record-header-key-size", "record-header-size")
_TIMEOUT = 60.0
_ABOUT = "This tool measures end-to-end latency in Kafka by sending messages and timing their reception."


def main(arguments: list[str]) -> int:
    try:
        try:
            options = PARSER.begin(_named(arguments), _ABOUT)
        except OptionError as reason:
            PARSER.usage(str(reason))
        options.require(*_REQUIRED)
        _check(options)
        _run(options)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _named(arguments: list[str]) -> list[str]:
    """Old positions as named options; as in Kafka's tool, a line without a known option is taken for positions."""
    names = (*_REQUIRED, "command-config")
    option_names = {f"--{name}" for name in (*names, *_OPTIONAL)}
    if not arguments or any(word.partition("=")[0] in option_names for word in arguments):
        return arguments
    if len(arguments) not in {5, 6}:
        print(
            f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got {len(arguments)}. "
            "Usage: bootstrap-server topic num-records producer-acks record-size [optional] command-config",
            file=sys.stderr,
        )
        raise Exit(1)
    print(
        "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use named "
        "arguments instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, --command-config"
    )
    return [word for name, value in zip(names, arguments, strict=False) for word in (f"--{name}", value)]


def _check(options: Options) -> None:
    if options.value("producer-acks") not in {"1", "all"}:
        options.usage(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. "
            "Please use '1' or 'all'."
        )
    if (options.integer("num-records") or 0) <= 0:
        options.usage("Value for --num-records must be a positive integer.")
    for name in ("record-size", "record-key-size", "num-headers", "record-header-key-size"):
        if (options.integer(name) or 0) < 0:
            options.usage(f"Value for --{name} must be a non-negative integer.")
    if (options.integer("record-header-size") or 0) < -1:
        options.usage("Value for --record-header-size must be a non-negative integer or -1 for null header value.")


def _run(options: Options) -> None:
    from confluent_kafka import TopicPartition

    from ottla.client.watermarks import watermarks

    properties = {
        **command_properties_of(options.value("command-config")),
        "bootstrap.servers": options.required("bootstrap-server"),
    }
    topic, count = options.required("topic"), options.integer("num-records") or 0
    consumer = made_client(
        {**properties, "group.id": f"test-group-{time.time_ns()}", "enable.auto.commit": "false"},
        producer=False,
        fetch__wait__max__ms=1000,
    )
    producer = made_client(
        {**properties, "acks": options.required("producer-acks"), "linger.ms": "0"},
        producer=True,
        queue__buffering__max__ms=0,
    )
    try:
        topic_metadata = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic]
        if topic_metadata.error is not None:
            _create(properties, topic)
            topic_metadata = _listed(consumer, topic)
        ends = {number: watermarks(consumer, topic, number, _TIMEOUT)[1] for number in topic_metadata.partitions}
        consumer.assign([TopicPartition(topic, number, end) for number, end in ends.items()])
        _measure(producer, consumer, topic, count, options)
    finally:
        consumer.close()


def _create(properties: dict[str, str], topic: str) -> None:
    from ottla.client.cluster import Cluster
    from ottla.client.settings import client_settings
    from ottla.client.topics import create_topic

    print(f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1')
    with Cluster(client_settings(properties["bootstrap.servers"], properties)) as cluster:
        create_topic(cluster, topic, partitions=1, replication_factor=1)


def _listed(consumer: Any, topic: str) -> Any:
    """Returns the metadata of a topic that was just created, once the broker has it."""
    deadline = time.monotonic() + _TIMEOUT
    while True:
        topic_metadata = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic]
        if topic_metadata.error is None and topic_metadata.partitions:
            return topic_metadata
        if time.monotonic() > deadline:
            raise ValueError(f"Topic {topic} is not there {_TIMEOUT:.0f} s after it was made")
        time.sleep(0.05)


def _measure(producer: Any, consumer: Any, topic: str, count: int, options: Options) -> None:
    latencies: list[float] = []
    headers = _headers(options)
    for number in range(count):
        payload = os.urandom(options.integer("record-size") or 0)
        key = os.urandom(size) if (size := options.integer("record-key-size") or 0) else None
        began = time.perf_counter_ns()
        producer.produce(topic, payload, key=key, headers=headers)
        producer.flush(_TIMEOUT)
        message = consumer.poll(_TIMEOUT)
        elapsed = (time.perf_counter_ns() - began) / 1_000_000
        if message is None or message.error() is not None:
            raise ValueError(f"poll() timed out before finding a result (timeout:[{int(_TIMEOUT * 1000)}ms])")
        if message.value() != payload:
            raise ValueError("The message value read does not match the message value sent")
        if number % 1000 == 0:
            print(f"{number}\t{elapsed}")
        latencies.append(elapsed)
    print(f"Avg latency: {sum(latencies) / max(count, 1):.4f} ms")
    values = sorted(latencies) or [0.0]
    tiers = [int(values[min(int(len(values) * share), len(values) - 1)]) for share in (0.5, 0.99, 0.999)]
    print("Percentiles: 50th = {}, 99th = {}, 99.9th = {}".format(*tiers))


def _headers(options: Options) -> list[tuple[str, bytes | None]]:
    size = options.integer("record-header-size") or 0
    key = "k" * (options.integer("record-header-key-size") or 0)
    return [(key, None if size < 0 else os.urandom(size)) for _ in range(options.integer("num-headers") or 0)]
