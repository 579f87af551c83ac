"""kafka-consumer-perf-test: how fast records can be read."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from ottla.cli.kafka.admin import REFUSED, command_properties_of
from ottla.cli.kafka.client_properties import RenamedOption, key_values, made_client, next_batch
from ottla.cli.kafka.console_options import check_subscription
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.cli.kafka.perf_stats import ClientMetrics
from ottla.payloads.java_dates import DatePattern

PARSER = OptionParser((
    Option("bootstrap-server", "String: server to connect to", "REQUIRED: brokers, as HOST:PORT,..."),
    Option("topic", "String: topic", "The topic to read."),
    Option("include", "String: Java regex (String)", "A regular expression for the topics to read."),
    Option("group", "String: gid", "The group to read in."),
    Option("fetch-size", "Integer: size", "Bytes of one fetch from a partition.", "1048576"),
    Option("from-latest", text="Start at the end where the group has no offset yet."),
    Option("socket-buffer-size", "Integer: size", "receive.buffer.bytes", "2097152"),
    Option("command-config", "String: config file", "A file with the consumer's properties."),
    Option("consumer.config", "String: config file", "(DEPRECATED) The same as --command-config."),
    Option("command-property", "String: prop1=val1", "A property of the consumer."),
    Option("print-metrics", text="Print librdkafka's statistics at the end."),
    Option("show-detailed-stats", text="Print a line every --reporting-interval milliseconds."),
    Option("timeout", "[Long: milliseconds]", "Milliseconds to wait for a record.", "10000"),
    Option("num-records", "Long: count", "REQUIRED: number of records."),
    Option("messages", "Long: count", "(DEPRECATED) The same as --num-records."),
    Option("reporting-interval", "Long: interval_ms", "Milliseconds between lines.", "5000"),
    Option("date-format", "String: date format", "Format of printed times.", "yyyy-MM-dd HH:mm:ss:SSS"),
    Option("hide-header", text="Do not print the column names."),
))  # fmt: skip
_BATCH = 500
"""As Java's max.poll.records: whole batches are counted, so the last one may go over the count that was asked for."""
_FIGURES = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
_CONFIG = RenamedOption("command-config", "consumer.config", "Warning: --{old} is deprecated. Use --{new} instead.")


def main(arguments: list[str]) -> int:
    try:
        try:
            options = PARSER.begin(arguments, "This tool is used to verify the consumer performance.")
        except OptionError as reason:
            PARSER.usage(str(reason))
        options.require("bootstrap-server")
        if options.has("topic") == options.has("include"):
            options.usage("Exactly one of the following arguments is required: [topic], [include]")
        if options.has("num-records") == options.has("messages"):
            options.usage("Exactly one of the following arguments is required: [messages], [num-records]")
        if options.has("messages"):
            print("Warning: --messages is deprecated. Use --num-records instead.")
        _CONFIG.check(options)
        return _run(options)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1


def _long(options: Options, name: str) -> int:
    text = options.value(name) or ""
    if not text.lstrip("-").isdigit():
        raise OptionError(f"Cannot parse argument '{text}' of option {name}")
    return int(text)


def _run(options: Options) -> int:
    detailed = options.has("show-detailed-stats")
    if not options.has("hide-header"):
        print(f"{'time, threadId' if detailed else 'start.time, end.time'}, {_FIGURES}")
    record_count = _long(options, "num-records" if options.has("num-records") else "messages")
    if _long(options, "reporting-interval") <= 0:
        raise OptionError("Reporting interval must be greater than 0.")
    check_subscription(options.value("topic"), options.value("include"))
    properties = {**command_properties_of(_CONFIG.value(options)), **key_values(options.values("command-property"))}
    properties |= {
        "bootstrap.servers": options.required("bootstrap-server"),
        "group.id": options.value("group") or f"perf-consumer-{random.randrange(100000)}",  # noqa: S311 - a name, no secret
        "auto.offset.reset": "latest" if options.has("from-latest") else "earliest",
        "max.partition.fetch.bytes": str(_long(options, "fetch-size")),
        "receive.buffer.bytes": str(_long(options, "socket-buffer-size")),
    }
    properties.setdefault("client.id", "perf-consumer-client")
    metrics = ClientMetrics("consumer-metrics", properties["client.id"]) if options.has("print-metrics") else None
    measurement = _Measurement(options, record_count)
    consumer = made_client(
        properties, producer=False, queued__min__messages=100_000, **(metrics.settings() if metrics else {})
    )
    try:
        measurement.run(consumer)
        if metrics:
            consumer.poll(1.2)
    finally:
        consumer.close()
    if metrics:
        metrics.show()
    return 0


class _Measurement:
    def __init__(self, options: Options, record_count: int) -> None:
        self._options = options
        self._record_count = record_count
        self._bytes = self._count = 0
        self._joined: float | None = None
        self._interval = _long(options, "reporting-interval") / 1000
        self._timeout = _long(options, "timeout") / 1000
        self._pattern = DatePattern(options.required("date-format"))

    def run(self, consumer: Any) -> None:
        topic = self._options.value("topic") or f"^({self._options.value('include')})$"
        start = last_report = last_record = time.time()
        reported = (0, 0)
        detailed = self._options.has("show-detailed-stats")
        consumer.subscribe([topic], on_assign=self._assigned)
        while self._count < self._record_count and time.time() - last_record < self._timeout:
            batch = next_batch(consumer, _BATCH, 0.1)
            now = time.time()  # one moment for the whole batch, as Java's: at most one line each
            for message in batch:
                if message.error() is None:
                    self._count += 1
                    self._bytes += len(message)
                    last_record = now
                    if detailed and now - last_report >= self._interval:
                        self._detail(last_report, now, reported)
                        last_report, reported = now, (self._bytes, self._count)
        if self._count < self._record_count:
            print(
                f"WARNING: Exiting before consuming the expected number of records: timeout ({int(self._timeout * 1000)} ms) "
                "exceeded. You can use the --timeout option to increase the timeout."
            )
        if not detailed:
            end = time.time()
            joined = self._joined or end
            print(
                f"{self._moment(start)}, {self._moment(end)}, {self._figures(end - start, joined - start, self._bytes, self._count)}"
            )

    def _assigned(self, consumer: Any, partitions: Any) -> None:
        del consumer, partitions
        self._joined = self._joined or time.time()

    def _figures(self, seconds: float, rebalance: float, size: int, count: int) -> str:
        fetch = max(seconds - rebalance, 1e-3)
        megabytes = size / 1048576
        return (
            f"{megabytes:.4f}, {megabytes / max(seconds, 1e-3):.4f}, {count}, {count / max(seconds, 1e-3):.4f}, "
            f"{int(rebalance * 1000)}, {int(fetch * 1000)}, {megabytes / fetch:.4f}, {count / fetch:.4f}"
        )

    def _detail(self, since: float, now: float, before: tuple[int, int]) -> None:
        size, count = self._bytes - before[0], self._count - before[1]
        elapsed = max(now - since, 1e-3)
        joining = max((self._joined or now) - since, 0)  # only in the first line
        rate, speed = size / 1048576 / elapsed, count / elapsed
        fetching = max(elapsed - joining, 1e-3)
        total = f"{self._bytes / 1048576:.4f}, {rate:.4f}, {self._count}, {speed:.4f}"
        fetched = f"{size / 1048576 / fetching:.4f}, {count / fetching:.4f}"
        print(f"{self._moment(now)}, 0, {total}, {int(joining * 1000)}, {int(fetching * 1000)}, {fetched}", flush=True)

    def _moment(self, seconds: float) -> str:
        return self._pattern.write(int(seconds * 1000), None)
