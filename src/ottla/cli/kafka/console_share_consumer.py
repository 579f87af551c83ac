"""kafka-console-share-consumer: records of a share group (KIP-932) on standard output, acknowledged as they are printed."""

from __future__ import annotations

import signal
import sys
import time

from ottla.cli.kafka.admin import REFUSED, open_cluster
from ottla.cli.kafka.client_properties import RenamedOption, key_values, merged_properties
from ottla.cli.kafka.formatters import BadRecord, PrintedRecord, Write, formatter_for
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.settings import load_properties
from ottla.client.share_consumer import ACCEPT, REJECT, RELEASE, ShareConsumer, ShareRecord

_WARNING = "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
FORMATTER = RenamedOption("formatter-property", "property", _WARNING)
PROPERTY = RenamedOption("command-property", "consumer-property", _WARNING)
CONFIG = RenamedOption("command-config", "consumer-config", _WARNING)
PARSER = OptionParser((
    Option("bootstrap-server", "String: server to connect to", "REQUIRED: brokers, as HOST:PORT,..."),
    Option("topic", "String: topic", "The topic to read."),
    Option("group", "String: share group id", "The share group.", "console-share-consumer"),
    Option("max-messages", "Integer: num_messages", "End after so many records."),
    Option("timeout-ms", "Integer: timeout_ms", "End when no record came for so long."),
    Option("reject", text="Reject every record."),
    Option("release", text="Release every record, so that others get it."),
    Option("reject-message-on-error", text="Reject records that cannot be printed, and go on."),
    Option("formatter", "String: class", "How to print records.", "org.apache.kafka.tools.consumer.DefaultMessageFormatter"),
    Option("formatter-property", "String: prop", "The formatter's properties, as of kafka-console-consumer."),
    Option("property", "String: prop", "(DEPRECATED) The same as --formatter-property."),
    Option("formatter-config", "String: config file", "A file with the formatter's properties."),
    Option("key-deserializer", "String: deserializer for keys", "The class that reads keys."),
    Option("value-deserializer", "String: deserializer for values", "The class that reads values."),
    Option("command-property", "String: consumer_prop", "A property of the consumer."),
    Option("consumer-property", "String: consumer_prop", "(DEPRECATED) The same as --command-property."),
    Option("command-config", "String: config file", "A file with the consumer's properties."),
    Option("consumer-config", "String: config file", "(DEPRECATED) The same as --command-config."),
    Option("enable-systest-events", text="Also say when the consumer ends."),
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
        options.require("topic", "bootstrap-server")
        if options.has("reject") and options.has("release"):
            options.usage("At most one of --reject and --release may be specified.")
        for renamed in (PROPERTY, CONFIG, FORMATTER):
            renamed.check(options)
        return _consume(options, _formatter(options), merged_properties(options, CONFIG, PROPERTY))
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1


def _formatter(options: Options) -> Write:
    path = options.value("formatter-config")
    properties = load_properties(path) if path else {}
    for what in ("key", "value"):
        if name := options.value(f"{what}-deserializer"):
            properties[f"{what}.deserializer"] = name
    try:
        return formatter_for(options.required("formatter"), properties | key_values(FORMATTER.values(options)))
    except OptionError as reason:
        options.usage(str(reason))


def _consume(options: Options, write: Write, properties: dict[str, str]) -> int:
    limit, idle = options.integer("max-messages"), options.integer("timeout-ms")
    kind = REJECT if options.has("reject") else RELEASE if options.has("release") else ACCEPT
    group = properties.get("group.id") or options.required("group")
    count, code = 0, 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    properties.setdefault("client.id", "console-share-consumer")
    with open_cluster(options.required("bootstrap-server"), properties) as cluster:
        consumer = ShareConsumer(cluster, group, options.required("topic"))
        last = time.monotonic()
        try:
            while limit is None or count < limit:
                for record in consumer.poll(500 if limit is None else limit - count):
                    last = time.monotonic()
                    if count == limit:  # a record batch comes whole: what is over goes back
                        consumer.acknowledge(record, RELEASE)
                        continue
                    count += 1
                    consumer.acknowledge(record, kind if _printed(write, _as_printed(record), options) else REJECT)
                sys.stdout.buffer.flush()
                if idle is not None and time.monotonic() - last > idle / 1000:
                    break
        except KeyboardInterrupt:
            code = 130
        finally:
            consumer.close()
            sys.stdout.flush()
            print(f"Processed a total of {count} messages", file=sys.stderr)
    if options.has("enable-systest-events"):
        print("shutdown_complete")
    return code


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
