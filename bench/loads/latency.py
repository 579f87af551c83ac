"""End-to-end latency: one record of 100 B at a time, from the call that sends it to the call that returns it."""

from __future__ import annotations

import time
from functools import partial

from bench.bed import Bed, MismatchError
from bench.javaclient import ClientError
from bench.loads import Case, Measured
from bench.measure import P50, P99, percentile
from bench.plan import Sizes
from bench.servers import Server
from bench.wire import Connection

NAME = "latency"
_BYTES = 100


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(
            load=NAME, label=f"{client}, acks={acks}", quantities=(P50, P99), run=partial(_measure, sizes, client, acks)
        )
        for client, acks in (("confluent-kafka", "1"), ("confluent-kafka", "all"), ("Java", "1"), ("Java", "all"))
    ]


def _measure(sizes: Sizes, client: str, acks: str, bed: Bed, role: str) -> Measured:
    server = bed.shared(role)
    ping = _confluent if client == "confluent-kafka" else _java
    with bed.topic(server, 1) as topic:
        if bed.first_time(role, f"{NAME} {client}"):
            ping(bed, server, topic, acks, sizes.latency_records)
        bed.settle()
        # The first tenth is the warm-up of the connections and is not counted.
        values = ping(bed, server, topic, acks, sizes.latency_records)[sizes.latency_records // 10 :]
    return {P50: percentile(values, 50) * 1000, P99: percentile(values, 99) * 1000}


def _end(server: Server, topic: str) -> int:
    with Connection(server.port) as connection:
        return connection.end_offsets(topic, 1)[0]


def _java(bed: Bed, server: Server, topic: str, acks: str, count: int) -> list[float]:
    printed = bed.java.run("latency", server.bootstrap, topic, count, acks, _BYTES, timeout_s=bed.sizes.timeout_s)
    values = [int(word) / 1e9 for word in printed.split()]
    if len(values) != count:
        raise MismatchError(f"{len(values)} records came back of {count}")
    return values


def _confluent(bed: Bed, server: Server, topic: str, acks: str, count: int) -> list[float]:
    import confluent_kafka

    common = {"bootstrap.servers": server.bootstrap, "socket.nagle.disable": True}
    producer = confluent_kafka.Producer({**common, "linger.ms": 0, "acks": acks})
    consumer = confluent_kafka.Consumer({**common, "group.id": bed.name("group"), "enable.auto.commit": False})
    deadline = time.monotonic() + bed.sizes.timeout_s
    values = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, _end(server, topic))])
        for index in range(count):
            value = index.to_bytes(_BYTES, "big")
            began = time.perf_counter()
            producer.produce(topic, value, partition=0)
            producer.poll(0)
            message = None
            while message is None:
                message = consumer.poll(1.0)
                if time.monotonic() > deadline:
                    raise ClientError(f"latency took more than {bed.sizes.timeout_s:g} s")
            values.append(time.perf_counter() - began)
            if message.error() is not None or message.value() != value:
                raise MismatchError(f"record {index} did not come back: {message.error() or message.value()!r}")
    finally:
        producer.flush(5)
        consumer.close()
    return values
