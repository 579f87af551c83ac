"""Throughput of reading a topic of 1 KB records from its beginning, out of the page cache, by four clients.

Kafka's ConsumerPerformance subscribes with a group (its rate without the rebalance is reported); a Java consumer and
confluent-kafka use assign(); raw Fetch requests show the broker with hardly any client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bench.bed import Bed, MismatchError, cpu_of, create_topic, require_written
from bench.javaclient import ClientError
from bench.loads import Case, Measured
from bench.loads.produce import Shape, write
from bench.measure import CPU_PER_GB, RATE
from bench.plan import Sizes
from bench.servers import Server
from bench.wire import Connection, fetch, fetched, walk

NAME = "consume"
_RECORD_BYTES = 1000
Reader = Callable[[Bed, Server, str, int, int], float]


def cases(sizes: Sizes) -> list[Case]:
    readers: dict[str, Reader] = {
        "Java, group": _java_group,
        "Java, assign": _java_assign,
        "confluent-kafka, assign": _confluent,
        "raw Fetch of 1 MB": _raw,
    }
    return [
        Case(
            load=NAME,
            label=f"{'1 partition' if partitions == 1 else f'{partitions} partitions'}, {client}",
            quantities=(RATE, CPU_PER_GB),
            run=partial(_measure, sizes, partitions, reader),
        )
        for partitions in (1, 6)
        for client, reader in readers.items()
    ]


def _measure(sizes: Sizes, partitions: int, reader: Reader, bed: Bed, role: str) -> Measured:
    server = bed.shared(role)
    count = sizes.consume_bytes // _RECORD_BYTES
    topic = _filled(bed, role, server, partitions, count)
    if bed.first_time(role, reader.__name__):
        # Once per server and client: the JIT of both, the page cache, and the topic of the groups' offsets.
        reader(bed, server, topic, partitions, count)
    bed.settle()
    with cpu_of(server) as cpu:
        seconds = reader(bed, server, topic, partitions, count)
    payload = count * _RECORD_BYTES
    return {RATE: payload / seconds / 1e6, CPU_PER_GB: cpu.seconds / (payload / 1e9)}


def _filled(bed: Bed, role: str, server: Server, partitions: int, count: int) -> str:
    """The role's topic to read, written when it is first asked for."""
    key = f"{NAME}-{partitions}"
    topic: str | None = bed.prepared[role].get(key)
    if topic is None:
        topic = bed.name("read")
        create_topic(server, topic, partitions)
        write(bed, server, topic, Shape(record_bytes=_RECORD_BYTES, partitions=partitions, acks="1"), count)
        require_written(server, topic, partitions, count)
        bed.prepared[role][key] = topic
    return topic


def require_read(records: int, count: int) -> None:
    if records < count:
        raise MismatchError(f"read {records} records of {count}")


def _java_group(bed: Bed, server: Server, topic: str, _partitions: int, count: int) -> float:
    printed = bed.java.tool(
        "ConsumerPerformance",
        *("--bootstrap-server", server.bootstrap, "--topic", topic, "--num-records", count),
        *("--group", bed.name("group"), "--hide-header", "--timeout", int(bed.sizes.timeout_s * 500)),
        timeout_s=bed.sizes.timeout_s,
    )
    fields = printed.strip().splitlines()[-1].split(", ")
    if len(fields) != 10:
        raise ClientError(f"ConsumerPerformance printed {printed[-300:].strip()}")
    require_read(int(fields[4]), count)
    return int(fields[7]) / 1000  # fetch.time.ms: without the rebalance


def _java_assign(bed: Bed, server: Server, topic: str, partitions: int, count: int) -> float:
    printed = bed.java.run("assign", server.bootstrap, topic, partitions, count, timeout_s=bed.sizes.timeout_s)
    records, _, nanoseconds = map(int, printed.split())
    require_read(records, count)
    return nanoseconds / 1e9


def _confluent(bed: Bed, server: Server, topic: str, partitions: int, count: int) -> float:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": bed.name("group"), "enable.auto.commit": False}
    )
    try:
        consumer.list_topics(topic, timeout=30)  # connects
        began = time.perf_counter()
        consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
        seen, deadline = 0, began + bed.sizes.timeout_s
        while seen < count and time.perf_counter() < deadline:
            for message in consumer.consume(10_000, timeout=0.5):
                if message.error() is not None:
                    raise ClientError(f"confluent-kafka: {message.error()}")
                seen += 1
        seconds = time.perf_counter() - began
    finally:
        consumer.close()
    require_read(seen, count)
    return seconds


def _raw(bed: Bed, server: Server, topic: str, partitions: int, count: int) -> float:
    """One request at a time, the partitions in turn, until all records came."""
    offsets, seen = [0] * partitions, 0
    with Connection(server.port, timeout_s=bed.sizes.timeout_s) as connection:
        ends = connection.end_offsets(topic, partitions)
        began = time.perf_counter()
        while seen < count:
            if time.perf_counter() - began > bed.sizes.timeout_s:
                raise ClientError(f"raw Fetch took more than {bed.sizes.timeout_s:g} s")
            for index in range(partitions):
                if offsets[index] >= ends[index]:
                    continue
                connection.socket.sendall(fetch(seen, topic, index, offsets[index], 1 << 20))
                got, next_offset = walk(fetched(connection.receive()))
                if not got:
                    raise MismatchError(f"an empty fetch at offset {offsets[index]} of {ends[index]}")
                offsets[index], seen = next_offset, seen + got
        seconds = time.perf_counter() - began
    if seen != count:
        raise MismatchError(f"read {seen} records of {count}")
    return seconds
