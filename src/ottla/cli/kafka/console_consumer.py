"""kafka-console-consumer: the records of a topic on standard output."""

from __future__ import annotations

import random
import signal
import sys
import time
from typing import Any

from ottla.cli.kafka.client_properties import RenamedOption, key_values, librdkafka_config, merged_properties
from ottla.cli.kafka.formatters import BadRecord, PrintedRecord, Write, formatter_for
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.settings import load_properties

_WARNING = "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
FORMATTER = RenamedOption("formatter-property", "property", _WARNING)
PROPERTY = RenamedOption("command-property", "consumer-property", _WARNING)
CONFIG = RenamedOption("command-config", "consumer.config", _WARNING)
PARSER = OptionParser((
    Option("bootstrap-server", "String: server to connect to", "REQUIRED: brokers, as HOST:PORT,..."),
    Option("topic", "String: topic", "The topic to read."),
    Option("include", "String: Java regex (String)", "A regular expression for the topics to read."),
    Option("partition", "Integer: partition", "Read only this partition, from its end unless --offset says where."),
    Option("offset", "String: consume offset", "An offset, earliest or latest.", "latest"),
    Option("group", "String: consumer group id", "The consumer group."),
    Option("from-beginning", text="Start at the beginning where the group has no offset yet."),
    Option("max-messages", "Integer: num_messages", "End after so many records."),
    Option("timeout-ms", "Long: timeout_ms", "End when no record came for so long."),
    Option("skip-message-on-error", text="Go on after a record that cannot be printed."),
    Option("isolation-level", "String", "read_committed or read_uncommitted.", "read_uncommitted"),
    Option("formatter", "String: class", "How to print records.", "org.apache.kafka.tools.consumer.DefaultMessageFormatter"),
    Option("formatter-property", "String: prop",
           "The formatter's: print.timestamp, print.key, print.offset, print.partition, print.headers, print.value, "
           "key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer"),
    Option("property", "String: prop", "(DEPRECATED) The same as --formatter-property."),
    Option("formatter-config", "String: config file", "A file with the formatter's properties."),
    Option("key-deserializer", "String: deserializer for keys", "The class that reads keys."),
    Option("value-deserializer", "String: deserializer for values", "The class that reads values."),
    Option("command-property", "String: consumer_prop", "A property of the consumer."),
    Option("consumer-property", "String: consumer_prop", "(DEPRECATED) The same as --command-property."),
    Option("command-config", "String: config file", "A file with the consumer's properties."),
    Option("consumer.config", "String: config file", "(DEPRECATED) The same as --command-config."),
    Option("enable-systest-events", text="Also say when the consumer starts and ends."),
))  # fmt: skip
_TIMESTAMPS = ("", "CreateTime", "LogAppendTime")
_BATCH = 500


def main(arguments: list[str]) -> int:
    try:
        options = _options(arguments)
        properties = _properties(options)
        write = _formatter(options)
        limit = options.integer("max-messages")
        idle = options.value("timeout-ms")
        return Session(
            options, properties, write, -1 if limit is None else limit, None if idle is None else int(idle)
        ).run()
    except Exit as end:
        return end.code
    except (OptionError, OSError, ValueError) as reason:
        print(reason, file=sys.stderr)
        return 1


def _options(arguments: list[str]) -> Options:
    try:
        options = PARSER.begin(
            arguments, "This tool helps to read data from Kafka topics and outputs it to standard output."
        )
    except OptionError as reason:
        PARSER.usage(str(reason))
    if options.has("topic") == options.has("include"):
        options.usage("Exactly one of the following arguments is required: [topic], [include]")
    if options.has("partition"):
        if not options.has("topic"):
            options.usage("The topic is required when partition is specified.")
        if options.has("from-beginning") and options.has("offset"):
            options.usage("Options from-beginning and offset cannot be specified together.")
    elif options.has("offset"):
        options.usage("The partition is required when offset is specified.")
    options.require("bootstrap-server")
    for renamed in (PROPERTY, CONFIG, FORMATTER):
        renamed.check(options)
    return options


def _properties(options: Options) -> dict[str, str]:
    properties = merged_properties(options, CONFIG, PROPERTY)
    groups = {name for name in (options.value("group"), properties.get("group.id")) if name is not None}
    if len(groups) > 1:
        listed = ", ".join(f"'{name}'" for name in groups)
        options.usage(
            "The group ids provided in different places (directly using '--group', via '--command-property', "
            f"or via '--command-config') do not match. Detected group ids: {listed}"
        )
    if groups and options.has("partition"):
        options.usage("Options group and partition cannot be specified together.")
    reset = properties.get("auto.offset.reset")
    if options.has("from-beginning") and reset not in {None, "earliest"}:
        print(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option",
            file=sys.stderr,
        )
        raise Exit(1)
    properties.setdefault("auto.offset.reset", "earliest" if options.has("from-beginning") else "latest")
    properties["bootstrap.servers"] = options.required("bootstrap-server")
    properties.setdefault("client.id", "console-consumer")
    if options.has("isolation-level") or "isolation.level" not in properties:
        properties["isolation.level"] = options.required("isolation-level")
    if groups:
        properties["group.id"] = groups.pop()
    else:
        properties["group.id"] = f"console-consumer-{random.randrange(100000)}"  # noqa: S311 - a name, no secret
        properties.setdefault("enable.auto.commit", "false")
    properties.setdefault("allow.auto.create.topics", "true")
    return properties


def _formatter(options: Options) -> Write:
    path = options.value("formatter-config")
    properties = {**(load_properties(path) if path else {})}
    for what in ("key", "value"):
        if name := options.value(f"{what}-deserializer"):
            properties[f"{what}.deserializer"] = name
    properties |= key_values(FORMATTER.values(options))
    try:
        return formatter_for(options.required("formatter"), properties)
    except OptionError as reason:
        options.usage(str(reason))


class Session:
    """One run: consume, print, count."""

    def __init__(
        self, options: Options, properties: dict[str, str], write: Write, limit: int, idle_ms: int | None
    ) -> None:
        self._options = options
        self._write = write
        self._limit = limit
        self._idle_ms = idle_ms
        self._count = 0
        self._offset = _offset(options)
        self._properties = properties
        self._warned: set[str] = set()

    def run(self) -> int:
        from confluent_kafka import Consumer, KafkaException

        try:
            consumer = Consumer({**librdkafka_config(self._properties, producer=False), "error_cb": self._complain})
        except KafkaException as reason:
            print(f"org.apache.kafka.common.config.ConfigException: {reason.args[0].str()}", file=sys.stderr)
            return 1
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        code = 0
        try:
            self._subscribe(consumer)
            code = self._loop(consumer)
        except KeyboardInterrupt:
            code = 130
        finally:
            _flush()
            self._commit_untouched(consumer)
            consumer.close()
            print(f"Processed a total of {self._count} messages", file=sys.stderr)
        if self._options.has("enable-systest-events"):
            print("shutdown_complete")
        return code

    def _complain(self, error: Any) -> None:
        words = error.str()
        if words not in self._warned:
            self._warned.add(words)
            print(f"WARN {words}", file=sys.stderr)

    def _subscribe(self, consumer: Any) -> None:
        from confluent_kafka import TopicPartition

        topic = self._options.value("topic")
        if self._options.has("partition") and topic is not None:
            partition = self._options.integer("partition") or 0
            consumer.assign([TopicPartition(topic, partition, self._offset)])
        elif topic is not None:
            consumer.subscribe([topic])
        else:
            consumer.subscribe([f"^({self._options.required('include')})$"])

    def _commit_untouched(self, consumer: Any) -> None:
        """Java's consumer also commits where it stands in partitions that had nothing to read; librdkafka does not."""
        from confluent_kafka import KafkaException, TopicPartition

        if not self._options.has("group") or self._properties.get("enable.auto.commit", "true").lower() == "false":
            return
        try:
            untouched = [place for place in consumer.position(consumer.assignment()) if place.offset < 0]
            fresh = (
                [place for place in consumer.committed(untouched, timeout=5) if place.offset < 0] if untouched else []
            )
            places = []
            for place in fresh:
                ends = consumer.get_watermark_offsets(place, timeout=5)
                start = ends[0] if self._properties["auto.offset.reset"] == "earliest" else ends[1]
                places.append(TopicPartition(place.topic, place.partition, start))
            if places:
                consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as reason:  # the group moved on, or the broker is gone: nothing is lost but a position
            self._complain(reason.args[0])

    def _loop(self, consumer: Any) -> int:
        last = time.monotonic()
        out = sys.stdout.buffer
        while self._limit < 0 or self._count < self._limit:
            wanted = _BATCH if self._limit < 0 else min(_BATCH, self._limit - self._count)
            messages = consumer.consume(wanted, 0) or ([first] if (first := consumer.poll(0.1)) is not None else [])
            for message in messages:
                if message.error() is not None:
                    self._complain(message.error())
                    continue
                last = time.monotonic()
                self._count += 1
                try:
                    self._write(printed(message), out)
                except BadRecord as reason:
                    print(f"ERROR {reason}", file=sys.stderr)
                    if not self._options.has("skip-message-on-error"):
                        return 1
            if messages and not _flush():
                print("Unable to write to standard out, closing consumer.", file=sys.stderr)
                return 0
            if self._idle_ms is not None and time.monotonic() - last > self._idle_ms / 1000:
                print("ERROR Error processing message, terminating consumer process: ", file=sys.stderr)
                print("org.apache.kafka.common.errors.TimeoutException", file=sys.stderr)
                return 0
        return 0


def printed(message: Any) -> PrintedRecord:
    kind, timestamp = message.timestamp()
    return PrintedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        _TIMESTAMPS[kind],
        timestamp,
        message.key(),
        message.value(),
        message.headers() or (),
    )


def _flush() -> bool:
    try:
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        return False
    return True


def _offset(options: Options) -> int:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    text = options.required("offset")
    if options.has("from-beginning") or text.lower() == "earliest":
        return int(OFFSET_BEGINNING)
    if text.lower() == "latest":
        return int(OFFSET_END)
    if not text.isdigit():
        options.usage(
            f"The provided offset value '{text}' is incorrect. "
            "Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(text)
