"""`ottla bench`: how fast this cluster is from here, in one command: writes, reads, and the time from end to end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target


@click.command()
@click.option(
    "-n",
    "--records",
    type=click.IntRange(100, 50_000_000),
    default=100_000,
    show_default=True,
    help="Number of records to write and read.",
)
@click.option(
    "-s", "--size", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Bytes of each record."
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Acknowledgements that the producer waits for.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
@click.option("--topic", help="Topic to use; without it, a new topic that is deleted afterwards.")
@connected
def bench(target: Target, records: int, size: int, acks: str, compression: str, topic: str | None) -> None:
    r"""Measure the throughput and latency of a cluster from this machine.

    \b
    Examples:
      ottla bench
      ottla bench -n 1000000 -s 200 -z lz4 --acks 1
    """
    import os

    from ottla.cli.terminal.output import show
    from ottla.cli.verbs.topic import advised_partitions, advised_replication
    from ottla.client.topics import create_topic, delete_topic

    name = topic or f"ottla-bench-{os.getpid()}-{time.time_ns() % 1_000_000}"
    with target.cluster() as cluster:
        if topic is None:
            brokers = len(cluster.describe("describeCluster").brokers)
            create_topic(
                cluster, name, partitions=advised_partitions(brokers), replication_factor=advised_replication(brokers)
            )
        try:
            rows = [_write(target, name, records, size, acks, compression), _read(target, name, records)]
        finally:
            if topic is None:
                delete_topic(cluster, name)
    show(rows, target.output, ("what", "records", "seconds", "records/s", "MB/s", "p50 ms", "p99 ms"))


def _row(what: str, records: int, seconds: float, size: int) -> dict[str, Any]:
    seconds = max(seconds, 1e-6)
    return {
        "what": what,
        "records": records,
        "seconds": round(seconds, 2),
        "records/s": round(records / seconds),
        "MB/s": round(size / seconds / 1e6, 1),
    }


def _write(target: Target, topic: str, records: int, size: int, acks: str, compression: str) -> dict[str, Any]:
    from confluent_kafka import Producer

    from ottla.cli.terminal.output import progress

    more = {"acks": acks, "compression.type": compression, "queue.buffering.max.messages": 200_000}
    producer: Any = Producer(target.librdkafka(producer=True, defaults={"linger.ms": 5}, **more))
    latencies: list[float] = []
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error.str())
        else:
            latencies.append(message.latency() * 1000)

    payload = b"x" * size
    began = time.perf_counter()
    with progress(records, "writing") as bar:
        for number in range(records):
            while True:
                try:
                    producer.produce(topic, payload, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 1000 == 0:
                producer.poll(0)
                bar.update(1000)
        producer.flush(120)
    if failed:
        raise ValueError(f"{len(failed)} records were refused: {failed[0]}")
    ordered = sorted(latencies)
    row = _row("write", records, time.perf_counter() - began, records * size)
    return row | {"p50 ms": round(ordered[len(ordered) // 2], 1), "p99 ms": round(ordered[int(len(ordered) * 0.99)], 1)}


def _read(target: Target, topic: str, records: int) -> dict[str, Any]:
    from ottla.cli.records.reading import Reading
    from ottla.cli.records.start_position import When

    reading = Reading(target, topic, When(beginning=True))
    seen = size = 0
    began = time.perf_counter()
    try:
        for batch in reading.batches(follow=False):
            seen += len(batch)
            size += sum(map(len, batch))
            if seen >= records:
                break
    finally:
        elapsed = time.perf_counter() - began
        reading.close()
    return _row("read", seen, elapsed, size)
