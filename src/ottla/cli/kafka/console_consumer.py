"""kafka-console-consumer: the records of a topic on standard output."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from typing import Any

from ottla.cli.kafka.admin import REFUSED
from ottla.cli.kafka.client_properties import RenamedOption, made_client, merged_properties, next_batch
from ottla.cli.kafka.console_options import (
    FORMATTER,
    PROPERTY,
    RENAMED,
    check_groups,
    check_subscription,
    formatter_of,
    reading_options,
)
from ottla.cli.kafka.formatters import BadRecord, PrintedRecord, Write
from ottla.cli.kafka.options import CTRL_C, INTERRUPTED, Exit, Option, OptionError, OptionParser, Options
from ottla.cli.terminal.interruption import StopSignals

CONFIG = RenamedOption("command-config", "consumer.config", RENAMED)
PARSER = OptionParser((
    *reading_options("consumer.config"),
    Option("include", "String: Java regex (String)", "A regular expression for the topics to read."),
    Option("partition", "Integer: partition", "Read only this partition, from --offset (default: its end)."),
    Option("offset", "String: consume offset", "Offset to start at, earliest or latest.", "latest"),
    Option("group", "String: consumer group id", "The consumer group."),
    Option("from-beginning", text="Start at the beginning where the group has no offset yet."),
    Option("skip-message-on-error", text="Continue after a record that cannot be printed."),
    Option("isolation-level", "String", "read_committed or read_uncommitted.", "read_uncommitted"),
))  # fmt: skip
_TIMESTAMPS = ("", "CreateTime", "LogAppendTime")
_BATCH = 500


def main(arguments: list[str]) -> int:
    try:
        options = _options(arguments)
        properties = _properties(options)
        write = formatter_of(options)
        limit = options.integer("max-messages")
        idle = options.value("timeout-ms")
        check_subscription(options.value("topic"), options.value("include"))
        return Session(
            options, properties, write, -1 if limit is None else limit, None if idle is None else int(idle)
        ).run()
    except Exit as end:
        return end.code
    except REFUSED as reason:
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
        options.integer("partition")
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
    group = check_groups(options, properties, ("command-property", "command-config"))
    if group is not None and options.has("partition"):
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
    if group is not None:
        properties["group.id"] = group
    else:
        properties["group.id"] = f"console-consumer-{random.randrange(100000)}"  # noqa: S311 - a name, no secret
        properties.setdefault("enable.auto.commit", "false")
    properties.setdefault("allow.auto.create.topics", "true")
    return properties


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
        self._commits = properties.get("enable.auto.commit", "true").lower() != "false"
        self._warned: set[str] = set()
        self._stop = StopSignals()

    def run(self) -> int:
        consumer = made_client(
            self._properties, producer=False, error_cb=self._complain, enable__auto__offset__store=False
        )
        code = 0
        try:
            with self._stop:
                self._subscribe(consumer)
                code = self._loop(consumer)
        except CTRL_C:
            code = INTERRUPTED
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

        if not self._options.has("group") or not self._commits:
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
            batch_limit = _BATCH if self._limit < 0 else min(_BATCH, self._limit - self._count)
            messages = next_batch(consumer, batch_limit, 0.1)
            for message in messages:
                if self._stop.requested:  # between two records: what was printed is committed
                    break
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
                if self._commits:
                    if not _flush():
                        break
                    _store(consumer, message)
            if messages and not _flush():
                print("Unable to write to standard out, closing consumer.", file=sys.stderr)
                return 0
            if self._stop.requested:
                return INTERRUPTED
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


def _store(consumer: Any, message: Any) -> None:
    """The next commit covers the record: it was printed. A partition that went to a different member is left to it."""
    from confluent_kafka import KafkaException

    with contextlib.suppress(KafkaException):
        consumer.store_offsets(message=message)


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
