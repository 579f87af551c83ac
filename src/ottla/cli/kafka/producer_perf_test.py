"""kafka-producer-perf-test: how fast records can be written, and how long each takes."""

from __future__ import annotations

import random
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from ottla.cli.kafka.arguments import ToolParser, java_integer
from ottla.cli.kafka.client_properties import key_values, librdkafka_config
from ottla.cli.kafka.options import Exit
from ottla.client.settings import load_properties


def main(arguments: list[str]) -> int:
    parser = _parser()
    try:
        if not arguments:
            parser.print_help()
            return 0
        given = parser.parse_args(arguments)
        return _run(given)
    except Exit as end:
        return end.code
    except (OSError, ValueError) as reason:
        print(reason, file=sys.stderr)
        return 1


def _parser() -> ToolParser:
    parser = ToolParser("kafka-producer-perf-test", "This tool is used to verify the producer performance.")
    number = java_integer(64)
    parser.add_argument("--bootstrap-server", metavar="BOOTSTRAP-SERVER", help="Brokers, as HOST:PORT,...")
    parser.add_argument("--topic", required=True, help="The topic to write to.")
    parser.add_argument("--num-records", required=True, type=number, metavar="NUM-RECORDS", help="How many records.")
    parser.add_argument(
        "--payload-delimiter", default="\\n", metavar="PAYLOAD-DELIMITER", help="Between payloads of a file."
    )
    parser.add_argument("--throughput", required=True, type=float, help="Records a second at most; -1 is no limit.")
    for name in ("--producer-props", "--command-property"):
        parser.add_argument(
            name, nargs="+", default=[], metavar="PROP-NAME=PROP-VALUE", help="The producer's properties."
        )
    for name in ("--producer.config", "--command-config"):
        parser.add_argument(name, metavar="CONFIG-FILE", help="A file with the producer's properties.")
    parser.add_argument("--print-metrics", action="store_true", help="librdkafka's statistics at the end.")
    parser.add_argument("--transactional-id", metavar="TRANSACTIONAL-ID", help="Write in transactions.")
    parser.add_argument(
        "--transaction-duration-ms", type=number, metavar="TRANSACTION-DURATION", help="How long each is."
    )
    parser.add_argument(
        "--warmup-records", type=number, default=0, metavar="WARMUP-RECORDS", help="Left out of the figures."
    )
    parser.add_argument(
        "--reporting-interval", type=number, default=5000, metavar="INTERVAL-MS", help="Between reports."
    )
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=java_integer(), metavar="RECORD-SIZE", help="Bytes of each record.")
    payload.add_argument("--payload-file", metavar="PAYLOAD-FILE", help="A file with payloads.")
    payload.add_argument("--payload-monotonic", action="store_true", help="0, 1, 2, ...")
    return parser


class Stats:
    """Latencies of all records and of those since the last report."""

    def __init__(self, interval_ms: int, warmup: int) -> None:
        self._interval = interval_ms / 1000
        self._warmup = warmup
        self._latencies: list[float] = []
        self._bytes = 0
        self._window: list[float] = []
        self._window_bytes = 0
        self._start = self._window_start = time.perf_counter()
        self._seen = 0

    def record(self, latency_ms: float, size: int) -> None:
        self._seen += 1
        self._window.append(latency_ms)
        self._window_bytes += size
        if self._seen == self._warmup:
            self._start = time.perf_counter()
        if self._seen > self._warmup:
            self._latencies.append(latency_ms)
            self._bytes += size
        if time.perf_counter() - self._window_start >= self._interval:
            self.report()

    def report(self) -> None:
        elapsed = time.perf_counter() - self._window_start
        count, total = len(self._window), sum(self._window)
        if count:
            print(
                f"{count} records sent, {count / elapsed:.1f} records/sec ({self._window_bytes / elapsed / 1048576:.2f} MB/sec), "
                f"{total / count:.1f} ms avg latency, {max(self._window):.1f} ms max latency.",
                flush=True,
            )
        self._window, self._window_bytes = [], 0
        self._window_start = time.perf_counter()

    def total(self) -> None:
        elapsed = max(time.perf_counter() - self._start, 1e-9)
        values = sorted(self._latencies) or [0.0]
        count = len(self._latencies)
        tiers = [values[min(int(share * len(values)), len(values) - 1)] for share in (0.5, 0.95, 0.99, 0.999)]
        words = ", ".join(
            f"{int(value)} ms {name}" for value, name in zip(tiers, ("50th", "95th", "99th", "99.9th"), strict=True)
        )
        print(
            f"{count} records sent, {count / elapsed:f} records/sec ({self._bytes / elapsed / 1048576:.2f} MB/sec), "
            f"{sum(values) / len(values):.2f} ms avg latency, {values[-1]:.2f} ms max latency, {words}."
        )


def _payloads(given: Namespace) -> list[bytes]:
    if given.payload_file is not None:
        path = Path(given.payload_file)
        print(f"Reading payloads from: {path.absolute()}")
        if not path.exists() or not path.stat().st_size:
            raise ValueError("File does not exist or empty file provided.")
        delimiter = given.payload_delimiter.replace("\\n", "\n").replace("\\t", "\t")
        found = [part.encode() for part in path.read_text(encoding="utf-8").split(delimiter) if part]
        print(f"Number of messages read: {len(found)}")
        return found
    chooser = random.Random(0)  # noqa: S311 - filler, the same each time as Java's tool has it
    return (
        [bytes(chooser.choices(range(65, 91), k=given.record_size)) for _ in range(16)] if given.record_size else [b""]
    )


def _run(given: Namespace) -> int:
    from confluent_kafka import KafkaException, Producer

    files = [name for name in (given.command_config, vars(given)["producer.config"]) if name]
    properties: dict[str, str] = {}
    for name in files:
        properties |= load_properties(name)
    properties |= key_values([*given.producer_props, *given.command_property])
    if given.bootstrap_server:
        properties["bootstrap.servers"] = given.bootstrap_server
    if "bootstrap.servers" not in properties:
        raise ValueError(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or --command-config must be specified."
        )
    transactional = given.transactional_id or properties.get("transactional.id")
    if given.transaction_duration_ms and not transactional:
        transactional = f"performance-producer-{random.randrange(1 << 48):x}"  # noqa: S311 - a name, no secret
    if transactional:
        properties["transactional.id"] = transactional
    payloads = [] if given.payload_monotonic else _payloads(given)
    properties.setdefault("client.id", "perf-producer-client")
    producer = Producer({
        **librdkafka_config(properties, producer=True),
        "queue.buffering.max.messages": 1_000_000,
        "linger.ms": properties.get("linger.ms", "5"),
        "partitioner": "murmur2_random",
    })  # fmt: skip
    try:
        return _produce(producer, given, payloads, transactional=bool(transactional))
    except KafkaException as reason:
        print(reason.args[0].str(), file=sys.stderr)
        return 1


def _produce(producer: Any, given: Namespace, payloads: list[bytes], *, transactional: bool) -> int:
    stats = Stats(given.reporting_interval, given.warmup_records)
    failures = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal failures
        if error is not None:
            failures += 1
            print(error.str(), file=sys.stderr)
            return
        stats.record(message.latency() * 1000, len(message))

    duration = (given.transaction_duration_ms or 3000) / 1000
    if transactional:
        producer.init_transactions(60)
        producer.begin_transaction()
    began = opened = time.perf_counter()
    for number in range(given.num_records):
        payload = payloads[number % len(payloads)] if payloads else str(number).encode()
        while True:
            try:
                producer.produce(given.topic, payload, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        if transactional and time.perf_counter() - opened > duration:
            producer.commit_transaction(60)
            producer.begin_transaction()
            opened = time.perf_counter()
        if given.throughput > 0:
            ahead = (number + 1) / given.throughput - (time.perf_counter() - began)
            if ahead > 0.001:
                producer.poll(ahead)
    if transactional:
        producer.commit_transaction(60)
    producer.flush(120)
    stats.total()
    return 1 if failures else 0
