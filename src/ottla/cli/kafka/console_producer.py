"""kafka-console-producer: lines of standard input as records, with a prompt on a terminal."""

from __future__ import annotations

import signal
import sys
from typing import Any

from ottla.cli.kafka.admin import ClientNotMade
from ottla.cli.kafka.client_properties import RenamedOption, key_values, made_client, merged_properties
from ottla.cli.kafka.line_reader import LineReader, LineRecord, ReaderError
from ottla.cli.kafka.options import CTRL_C, INTERRUPTED, Exit, Option, OptionError, OptionParser, Options
from ottla.client.errors import BadSettings
from ottla.client.settings import load_properties, parse_addresses

_WARNING = "Warning: --{old} is deprecated and will be removed in a future version. Use --{new} instead."
READER = RenamedOption("reader-property", "property", _WARNING)
PROPERTY = RenamedOption("command-property", "producer-property", _WARNING)
CONFIG = RenamedOption("command-config", "producer.config", _WARNING)
PARSER = OptionParser((
    Option("bootstrap-server", "String: server to connect to", "REQUIRED: brokers, as HOST:PORT,..."),
    Option("topic", "String: topic", "REQUIRED: the topic to write to."),
    Option("sync", text="Send one record at a time and wait for its acknowledgement."),
    Option("compression-codec", "[String: compression-codec]", "none, gzip, snappy, lz4 or zstd; gzip without a value."),
    Option("batch-size", "Integer: size", "Bytes of a batch.", "16384"),
    Option("message-send-max-retries", "Integer", "Number of retries of a record.", "3"),
    Option("retry-backoff-ms", "Long", "Milliseconds between retries.", "100"),
    Option("timeout", "Long: timeout_ms", "Milliseconds that a record may wait for a batch (linger.ms).", "1000"),
    Option("request-required-acks", "String: request required acks", "acks of the producer.", "-1"),
    Option("request-timeout-ms", "Integer: request timeout ms", "Milliseconds that a request may last.", "1500"),
    Option("metadata-expiry-ms", "Long: metadata expiration interval", "metadata.max.age.ms", "300000"),
    Option("max-block-ms", "Long: max block on send", "Milliseconds that send() may block.", "60000"),
    Option("max-memory-bytes", "Long: total memory in bytes", "Bytes that may wait to be sent.", "33554432"),
    Option("max-partition-memory-bytes", "Integer: memory in bytes per partition", "The same as --batch-size.", "16384"),
    Option("line-reader", "String: reader_class", "Class of the reader.", "org.apache.kafka.tools.LineMessageReader"),
    Option("socket-buffer-size", "Integer: size", "send.buffer.bytes", "102400"),
    Option("reader-property", "String: prop",
           "Property of the reader: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
           "headers.key.separator, null.marker, ignore.error"),
    Option("property", "String: prop", "(DEPRECATED) The same as --reader-property."),
    Option("reader-config", "String: config file", "A file with the reader's properties."),
    Option("command-property", "String: producer_prop", "A property of the producer."),
    Option("producer-property", "String: producer_prop", "(DEPRECATED) The same as --command-property."),
    Option("command-config", "String: config file", "A file with the producer's properties."),
    Option("producer.config", "String: config file", "(DEPRECATED) The same as --command-config."),
))  # fmt: skip
_NUMBERS = (
    "batch-size", "message-send-max-retries", "request-timeout-ms", "max-partition-memory-bytes", "socket-buffer-size",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    try:
        options = _options(arguments)
        reader_properties, producer_properties = _properties(options)
        reader = LineReader(reader_properties)
    except Exit as end:
        return end.code
    except (OptionError, ReaderError, OSError, ValueError) as reason:
        print(reason, file=sys.stderr)
        return 1
    return _produce(options, reader, producer_properties, reader_properties)


def _options(arguments: list[str]) -> Options:
    try:
        options = PARSER.begin(arguments, "This tool helps to read data from standard input and publish it to Kafka.")
    except OptionError as reason:
        PARSER.usage(str(reason))
    options.require("topic")
    for renamed in (READER, PROPERTY, CONFIG):
        renamed.check(options)
    if not options.has("bootstrap-server"):
        options.usage("Error while validating the bootstrap address\n")
    try:
        parse_addresses(options.required("bootstrap-server"))
    except BadSettings:
        options.usage("Please provide valid host:port like host1:9091,host2:9092\n ")
    return options


def _properties(options: Options) -> tuple[dict[str, str], dict[str, str]]:
    path = options.value("reader-config")
    reader = {**(load_properties(path) if path else {}), **key_values(READER.values(options))}
    properties = merged_properties(options, CONFIG, PROPERTY)
    for name in _NUMBERS:
        options.integer(name)
    codec = (options.value("compression-codec") or "gzip") if options.has("compression-codec") else "none"
    properties["bootstrap.servers"] = options.required("bootstrap-server")
    properties["compression.type"] = codec
    properties.setdefault("client.id", "console-producer")
    for name, option in (
        ("linger.ms", "timeout"),
        ("acks", "request-required-acks"),
        ("request.timeout.ms", "request-timeout-ms"),
        ("retries", "message-send-max-retries"),
        ("retry.backoff.ms", "retry-backoff-ms"),
        ("batch.size", "batch-size"),
        ("metadata.max.age.ms", "metadata-expiry-ms"),
    ):
        if options.has(option) or name not in properties:
            properties[name] = options.value(option) or ""
    if properties["acks"] in {"-1", "all"} and properties["retries"] != "0":
        properties.setdefault("enable.idempotence", "true")  # as Java's producer does by default
    properties.setdefault("delivery.timeout.ms", options.value("max-block-ms") or "60000")
    return reader, properties


def _produce(
    options: Options, reader: LineReader, properties: dict[str, str], reader_properties: dict[str, str]
) -> int:
    from confluent_kafka import KafkaException

    topic = options.required("topic")
    try:  # murmur2_random: as Java's client places keys
        producer = made_client(properties, producer=True, partitioner="murmur2_random", error_cb=_Complaints())
    except ClientNotMade as reason:
        print(reason, file=sys.stderr)
        return 1
    # Kafka's own tool hands --property to the reader only, where a partitioner does nothing; the user meant this.
    partitioner = reader_properties.get("partitioner.class") or properties.get("partitioner.class") or ""
    spread = _RoundRobin(producer, topic) if partitioner.endswith("RoundRobinPartitioner") else None
    prompt = sys.stdin.isatty() and sys.stdout.isatty()
    sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # a TextIOWrapper, as it comes
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = 0
    try:
        for line in _lines(prompt=prompt):
            _send(producer, topic, reader.read(line), spread, sync=options.has("sync"))
    except ReaderError as reason:
        print(f"org.apache.kafka.common.KafkaException: {reason}", file=sys.stderr)
        code = 1
    except KafkaException as reason:
        print(f"{reason.args[0].str()}", file=sys.stderr)
        code = 1
    except CTRL_C:
        code = INTERRUPTED
    producer.flush(float(properties["delivery.timeout.ms"]) / 1000 + 5)
    return code


def _lines(*, prompt: bool) -> Any:
    while True:
        if prompt:
            print(">", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\n").removesuffix("\r")


def _send(producer: Any, topic: str, record: LineRecord, spread: _RoundRobin | None, *, sync: bool) -> None:
    from confluent_kafka import KafkaException

    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            return
        failed.append(error)
        key, value = message.key(), message.value()
        sizes = ["null" if part is None else f"{len(part)} bytes" for part in (key, value)]
        words = f"Error when sending message to topic {topic} with key: {sizes[0]}, value: {sizes[1]} with error:"
        print(f"ERROR {words} {error.str()}", file=sys.stderr)

    where = {} if spread is None else {"partition": spread.next()}
    while True:
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=record.headers or None,
                on_delivery=delivered,
                **where,
            )
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)
    if sync:
        producer.flush()
        if failed:
            raise KafkaException(failed[0])


class _RoundRobin:
    """One partition after the other, whatever the key: Java's RoundRobinPartitioner."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self._count = 0
        self._next = 0

    def next(self) -> int:
        from confluent_kafka import KafkaException

        if not self._count:
            try:
                self._count = len(self._producer.list_topics(self._topic, timeout=10).topics[self._topic].partitions)
            except KafkaException:
                return -1
        if not self._count:
            return -1  # the topic is about to be created: librdkafka places it then
        self._next += 1
        return (self._next - 1) % self._count


class _Complaints:
    """Prints each warning of librdkafka about the brokers once."""

    def __init__(self) -> None:
        self._printed_warnings: set[str] = set()

    def __call__(self, error: Any) -> None:
        words = str(error.str())
        if words not in self._printed_warnings:
            self._printed_warnings.add(words)
            print(f"WARN {words}", file=sys.stderr)
