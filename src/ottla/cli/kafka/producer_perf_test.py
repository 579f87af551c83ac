"""kafka-producer-perf-test: how fast records can be written, and how long each takes."""

from __future__ import annotations

import random
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from ottla.cli.kafka.admin import REFUSED, command_properties_of
from ottla.cli.kafka.arguments import ToolParser, java_double, java_integer
from ottla.cli.kafka.client_properties import key_values, made_client
from ottla.cli.kafka.options import Exit
from ottla.cli.kafka.perf_stats import ClientMetrics, Stats

_TRANSACTION_MS = 3000
_POSITIVE = ("num-records", "record-size", "warmup-records", "reporting-interval", "transaction-duration-ms")


def main(arguments: list[str]) -> int:
    parser = _parser()
    try:
        if not arguments:
            parser.print_help()
            return 0
        parsed = parser.parse(arguments)
        _check(parser, parsed)
        return _run(parsed)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1


def _parser() -> ToolParser:
    parser = ToolParser("kafka-producer-perf-test", "This tool is used to verify the producer performance.")
    number = java_integer(64)
    parser.add_argument("--bootstrap-server", metavar="BOOTSTRAP-SERVER", help="Brokers, as HOST:PORT,...")
    parser.add_argument("--topic", required=True, help="Topic to write to.")
    parser.add_argument("--num-records", required=True, type=number, metavar="NUM-RECORDS", help="Number of records.")
    parser.add_argument(
        "--payload-delimiter",
        default="\\n",
        metavar="PAYLOAD-DELIMITER",
        help="Delimiter between payloads in the payload file.",
    )
    parser.add_argument(
        "--throughput", required=True, type=java_double, help="Most records a second; -1 sets no limit."
    )
    for name in ("--producer-props", "--command-property"):
        parser.add_argument(
            name, nargs="+", default=None, metavar="PROP-NAME=PROP-VALUE", help="The producer's properties."
        )
    for name in ("--producer.config", "--command-config"):
        parser.add_argument(name, metavar="CONFIG-FILE", help="A file with the producer's properties.")
    parser.add_argument("--print-metrics", action="store_true", help="Print librdkafka's statistics at the end.")
    parser.add_argument("--transactional-id", metavar="TRANSACTIONAL-ID", help="Write in transactions.")
    parser.add_argument(
        "--transaction-duration-ms",
        type=number,
        metavar="TRANSACTION-DURATION",
        help="Milliseconds of each transaction.",
    )
    parser.add_argument(
        "--warmup-records", type=number, metavar="WARMUP-RECORDS", help="Records to exclude from the second summary."
    )
    parser.add_argument(
        "--reporting-interval", type=number, default=5000, metavar="INTERVAL-MS", help="Milliseconds between reports."
    )
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=java_integer(), metavar="RECORD-SIZE", help="Bytes of each record.")
    payload.add_argument("--payload-file", metavar="PAYLOAD-FILE", help="A file with payloads.")
    payload.add_argument("--payload-monotonic", action="store_true", help="Payloads 0, 1, 2, ...")
    return parser


def _check(parser: ToolParser, parsed: Namespace) -> None:
    """What Kafka's tool refuses after parsing, and its warnings of old spellings."""
    values = vars(parsed)
    for new, old in (("command-property", "producer-props"), ("command-config", "producer.config")):
        if values[new.replace("-", "_")] is not None and values[old.replace("-", "_")] is not None:
            parser.error(f"--{new} and --{old} cannot be specified together.")
        if values[old.replace("-", "_")] is not None:
            print(f"Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead.")
    for name in _POSITIVE:
        value = values[name.replace("-", "_")]
        if value is not None and value <= 0:
            parser.error(f"--{name} should be greater than zero.")
    if parsed.warmup_records is not None and parsed.warmup_records >= parsed.num_records:
        parser.error(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, --num-records."
        )
    sources = ("bootstrap_server", "command_property", "producer_props", "producer.config", "command_config")
    if all(values[name] is None for name in sources):
        parser.error(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config "
            "or --command-config must be specified."
        )


def _properties(parsed: Namespace) -> dict[str, str]:
    properties = command_properties_of(parsed.command_config or vars(parsed)["producer.config"])
    properties |= key_values(parsed.command_property or parsed.producer_props or [])
    if parsed.bootstrap_server:
        properties["bootstrap.servers"] = parsed.bootstrap_server
    if "bootstrap.servers" not in properties:
        raise ValueError('Missing required configuration "bootstrap.servers" which has no default value.')
    transactional = parsed.transactional_id or properties.get("transactional.id")
    if parsed.transaction_duration_ms and not transactional:
        transactional = f"performance-producer-{random.randrange(1 << 48):x}"  # noqa: S311 - a name, no secret
    if transactional:
        properties["transactional.id"] = transactional
    properties.setdefault("client.id", "perf-producer-client")
    properties.setdefault("linger.ms", "5")
    return properties


def _payloads(parsed: Namespace) -> list[bytes]:
    if parsed.payload_file is not None:
        path = Path(parsed.payload_file)
        print(f"Reading payloads from: {path.absolute()}")
        if not path.exists() or not path.stat().st_size:
            raise ValueError("File does not exist or empty file provided.")
        delimiter = parsed.payload_delimiter.replace("\\n", "\n").replace("\\t", "\t")
        payloads = [part.encode() for part in path.read_text(encoding="utf-8").split(delimiter)]
        while len(payloads) > 1 and not payloads[-1]:
            payloads.pop()  # Java's split drops what is empty at the end
        print(f"Number of records read: {len(payloads)}")
        return payloads
    chooser = random.Random(0)  # noqa: S311 - filler, the same each time as Java's tool has it
    return [bytes(chooser.choices(range(65, 91), k=parsed.record_size)) for _ in range(16)]


def _run(parsed: Namespace) -> int:
    from confluent_kafka import KafkaException

    payloads = [] if parsed.payload_monotonic else _payloads(parsed)
    properties = _properties(parsed)
    metrics = ClientMetrics("producer-metrics", properties["client.id"]) if parsed.print_metrics else None
    producer = made_client(
        properties,
        producer=True,
        queue__buffering__max__messages=1_000_000,
        partitioner="murmur2_random",
        **(metrics.settings() if metrics else {}),
    )
    try:
        code = _produce(producer, parsed, payloads, transactional="transactional.id" in properties)
    except KafkaException as reason:
        print(reason.args[0].str(), file=sys.stderr)
        return 1
    if metrics:
        producer.poll(1.2)
        metrics.show()
    return code


def _produce(producer: Any, parsed: Namespace, payloads: list[bytes], *, transactional: bool) -> int:
    if parsed.warmup_records:
        print(
            f"Warmup first {parsed.warmup_records} records. "
            "Steady state results will print after the complete test summary."
        )
    stats = Stats(parsed.reporting_interval)
    steady = Stats(parsed.reporting_interval, quiet=True) if parsed.warmup_records else None

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            print(error.str(), file=sys.stderr)
            return
        size, latency = len(message), message.latency() * 1000
        stats.record(latency, size)
        if steady is not None and stats.count > parsed.warmup_records:
            steady.record(latency, size)

    duration = (parsed.transaction_duration_ms or _TRANSACTION_MS) / 1000
    if transactional:
        producer.init_transactions(60)
        producer.begin_transaction()
    began = opened = time.perf_counter()
    for number in range(parsed.num_records):
        payload = payloads[number % len(payloads)] if payloads else str(number).encode()
        while True:
            try:
                producer.produce(parsed.topic, payload, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        if steady is not None and number + 1 == parsed.warmup_records:
            steady.begin()
        if transactional and time.perf_counter() - opened > duration:
            producer.commit_transaction(60)
            producer.begin_transaction()
            opened = time.perf_counter()
        if parsed.throughput > 0:
            ahead = (number + 1) / parsed.throughput - (time.perf_counter() - began)
            if ahead > 0.001:
                producer.poll(ahead)
    if transactional:
        producer.commit_transaction(60)
    producer.flush(120)
    stats.total()
    if steady is not None:
        steady.total("steady state ")
    return 0
