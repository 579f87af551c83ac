"""kafka-replica-verification: whether the replicas of partitions hold the same batches (deprecated in Kafka, like its twin).

Each round reads one stretch from every replica, as a debugging replica does, and compares checksums batch by batch.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime

from ottla.cli.kafka.admin import REFUSED, cluster_of, include_pattern
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.cluster import Cluster
from ottla.client.errors import BadSettings
from ottla.client.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from ottla.client.settings import parse_addresses
from ottla.client.topics import list_topics
from ottla.protocol.records_header import iterate_batches

PARSER = OptionParser((
    Option("bootstrap-server,broker-list", "String: hostname:port,...,hostname:port", "REQUIRED: brokers, as HOST:PORT,..."),
    Option("command-config", "String: config file", "A file with the client's properties."),
    Option("fetch-size", "Integer: bytes", "Bytes of one fetch.", "1048576"),
    Option("max-wait-ms", "Integer: ms", "How long a fetch may wait.", "1000"),
    Option("topics-include", "String: Java regex (String)", "Which topics.", ".*"),
    Option("time", "Long: timestamp/-1(latest)/-2(earliest)", "Where to begin.", "-1"),
    Option("report-interval-ms", "Long: ms", "Between reports.", "30000"),
    Option("rounds", "Integer: count", "End after so many rounds; 0 goes on until Ctrl-C.", "0"),
))  # fmt: skip
_DEBUGGER = -2
"""A replica id that reads everything and changes nothing (Kafka's DEBUGGING_CONSUMER_ID)."""
Partition = tuple[str, int]


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "Validate that all replicas for a set of topics have the same data.")
        options.require("bootstrap-server")
        _check(options)
        with cluster_of(options) as cluster:
            _verify(cluster, options)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _check(options: Options) -> None:
    """In Kafka's order: the pattern, the numbers, the addresses."""
    text = options.required("topics-include")
    try:
        include_pattern(text)
    except ValueError:
        raise OptionError(f"{text} is an invalid regex") from None
    for name in ("fetch-size", "max-wait-ms", "rounds"):
        options.integer(name)
    for name in ("time", "report-interval-ms"):
        if not re.fullmatch(r"[-+]?\d+", options.required(name)):
            raise OptionError(f"Cannot parse argument '{options.required(name)}' of option {name}")
    try:
        parse_addresses(options.required("bootstrap-server"))
    except BadSettings:
        options.usage("Please provide valid host:port like host1:9091,host2:9092\n ")


def _now() -> str:
    moment = datetime.now()  # noqa: DTZ005 - the user's own clock, as Java's tool has it
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"


def _verify(cluster: Cluster, options: Options) -> None:
    chosen = include_pattern(options.required("topics-include"))
    replicas = {
        (topic.name or "", row.partition_index): tuple(row.replica_nodes)
        for topic in list_topics(cluster)
        if chosen.fullmatch(topic.name or "")
        for row in topic.partitions
    }
    if not replicas:
        raise ValueError(
            "No topics found. --topics-include, if specified, is either filtering out all topics or there is no topic."
        )
    start = {"-1": LATEST, "-2": EARLIEST}.get(options.required("time"), int(options.required("time")))
    found = list_offsets(cluster, dict.fromkeys(replicas, start))
    offsets = {place: row.offset for place, row in found.items() if isinstance(row, FoundOffset) and row.offset >= 0}
    print(f"{_now()}: verification process is started.")
    interval, rounds, done = int(options.required("report-interval-ms")) / 1000, options.integer("rounds") or 0, 0
    reported = time.monotonic()
    while True:
        worst = (-1, "", 0)
        for place, offset in list(offsets.items()):
            lag, ahead = _compare(cluster, place, replicas[place], offset, options)
            worst = max(worst, (lag, f"{place[0]}-{place[1]}", ahead))
            offsets[place] = ahead
        done += 1
        if time.monotonic() - reported >= interval or done == rounds:
            print(
                f"{_now()}: max lag is {worst[0]} for partition {worst[1]} at offset {worst[2]} among {len(offsets)} partitions",
                flush=True,
            )
            reported = time.monotonic()
        if done == rounds:
            return


def _compare(
    cluster: Cluster, place: Partition, brokers: tuple[int, ...], offset: int, options: Options
) -> tuple[int, int]:
    """How far the slowest replica is behind, and where all of them have been read to."""
    ends: dict[int, int] = {}
    batches: dict[int, dict[int, int]] = {}
    for broker in brokers:
        ends[broker], data = _fetch(cluster, place, broker, offset, options)
        batches[broker] = {header.base_offset: header.crc for _, header in iterate_batches(data)}
    first = batches[brokers[0]]
    for broker in brokers[1:]:
        for base, crc in batches[broker].items():
            if base in first and first[base] != crc:
                where = f"partition {place[0]}-{place[1]}: replica {brokers[0]} and replica {broker} differ at offset {base}"
                print(f"{_now()}: {where}: checksums {first[base] & 0xFFFFFFFF} and {crc & 0xFFFFFFFF}", flush=True)
    return max(ends.values()) - min(ends.values()), max(offset, min(ends.values()))


def _fetch(cluster: Cluster, place: Partition, broker: int, offset: int, options: Options) -> tuple[int, bytes]:
    from ottla.client.errors import check
    from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
    from ottla.protocol.generated.fetch_response import FetchResponse

    size, wait = options.integer("fetch-size") or 1 << 20, options.integer("max-wait-ms") or 0
    row = FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        replica_id=_DEBUGGER, max_wait_ms=wait if offset < 0 else min(wait, 100), min_bytes=0, max_bytes=size,
        topics=[FetchTopic(topic=place[0], partitions=[row])],
    )  # fmt: skip
    answer = cluster.node_call("fetch", broker, request, FetchResponse, 12)  # above, topics have ids instead of names
    check(answer.error_code)
    found = answer.responses[0].partitions[0]
    check(found.error_code)
    return found.high_watermark, bytes(found.records or b"")
