"""kafka-console-share-consumer: records of a share group (KIP-932) on standard output, acknowledged as they are printed."""

from __future__ import annotations

import contextlib
import signal
import sys
import time

from ottla.cli.kafka.admin import REFUSED, ClientNotMade, open_cluster
from ottla.cli.kafka.client_properties import RenamedOption, check_numbers, merged_properties
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
from ottla.client.cluster import Cluster
from ottla.client.share_consumer import ACCEPT, REJECT, RELEASE, ShareConsumer, ShareRecord

CONFIG = RenamedOption("command-config", "consumer-config", RENAMED)
PARSER = OptionParser((
    *reading_options("consumer-config"),
    Option("group", "String: share group id", "The share group (console-share-consumer)."),
    Option("reject", text="Reject every record."),
    Option("release", text="Release every record, so that other members receive it."),
    Option("reject-message-on-error", text="Reject records that cannot be printed, and continue."),
))  # fmt: skip


def main(arguments: list[str]) -> int:
    try:
        try:
            options = PARSER.begin(
                arguments,
                "This tool helps to read data from Kafka topics using share groups and outputs it to standard output.",
            )
        except OptionError as reason:
            PARSER.usage(str(reason))
        if not options.has("topic"):
            options.usage("--topic is a required argument")
        options.require("bootstrap-server")
        if options.has("reject") and options.has("release"):
            options.usage("At most one of --reject and --release may be specified.")
        for renamed in (PROPERTY, CONFIG, FORMATTER):
            renamed.check(options)
        return _consume(options, formatter_of(options), merged_properties(options, CONFIG, PROPERTY))
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1


def _consume(options: Options, write: Write, properties: dict[str, str]) -> int:
    idle = options.integer("timeout-ms")
    try:
        limit = options.integer("max-messages")
    except OptionError as reason:
        print(f"joptsimple.OptionArgumentConversionException: {reason}", file=sys.stderr)
        print("Processed a total of 0 messages", file=sys.stderr)
        return 1
    kind = REJECT if options.has("reject") else RELEASE if options.has("release") else ACCEPT
    group = check_groups(options, properties, ("consumer-property", "consumer-config")) or "console-share-consumer"
    check_subscription(options.value("topic"))
    count, code = 0, 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    properties.setdefault("client.id", "console-share-consumer")
    with _opened(options.required("bootstrap-server"), properties) as cluster:
        consumer = ShareConsumer(cluster, group, options.required("topic"))
        last = time.monotonic()
        printed: list[tuple[ShareRecord, int]] = []
        try:
            while limit is None or count < limit:
                for record in consumer.poll(500 if limit is None else limit - count):
                    last = time.monotonic()
                    if count == limit:  # a record batch comes whole: what is over goes back
                        consumer.acknowledge(record, RELEASE)
                        continue
                    count += 1
                    printed.append((record, kind if _printed(write, _as_printed(record), options) else REJECT))
                    if count == limit:
                        break  # brokers hand out whole batches; the rest goes back when the session ends
                _settle(consumer, printed)
                if idle is not None and time.monotonic() - last > idle / 1000:
                    break
        except CTRL_C:
            code = INTERRUPTED
        finally:
            with contextlib.suppress(BrokenPipeError):
                _settle(consumer, printed)
            consumer.close()
            print(f"Processed a total of {count} messages", file=sys.stderr)
    if options.has("enable-systest-events"):
        print("shutdown_complete")
    return code


def _settle(consumer: ShareConsumer, printed: list[tuple[ShareRecord, int]]) -> None:
    """Acknowledges records that have left this process; BrokenPipeError if nobody reads them."""
    sys.stdout.buffer.flush()
    while printed:
        consumer.acknowledge(*printed.pop(0))


def _opened(bootstrap: str, properties: dict[str, str]) -> Cluster:
    check_numbers(properties)
    try:
        return open_cluster(bootstrap, properties)
    except ClientNotMade as reason:
        raise ClientNotMade("Failed to construct Kafka share consumer") from reason


def _as_printed(record: ShareRecord) -> PrintedRecord:
    return PrintedRecord(
        record.topic,
        record.place[1],
        record.offset,
        record.timestamp_type,
        record.timestamp,
        record.key,
        record.value,
        record.headers,
        record.delivery,
    )


def _printed(write: Write, record: PrintedRecord, options: Options) -> bool:
    try:
        write(record, sys.stdout.buffer)
    except BadRecord as reason:
        print(f"ERROR {reason}", file=sys.stderr)
        if not options.has("reject-message-on-error"):
            raise OptionError(str(reason)) from reason
        return False
    return True
