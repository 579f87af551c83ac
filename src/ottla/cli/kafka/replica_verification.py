"""kafka-replica-verification: whether the replicas of partitions hold the same batches (deprecated in Kafka, like its twin).

Each round reads one stretch from every replica, as a debugging replica does, and compares offsets and checksums batch by
batch up to the high watermark.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime

from ottla.cli.kafka.admin import REFUSED, cluster_of, include_pattern
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.cluster import Cluster
from ottla.client.errors import BadSettings
from ottla.client.offsets import FoundOffset, list_offsets
from ottla.client.settings import parse_addresses
from ottla.client.topics import list_topics
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.protocol.records_header import BatchHeader, iterate_batches

PARSER = OptionParser((
    Option("bootstrap-server,broker-list", "String: hostname:port,...,hostname:port", "REQUIRED: brokers, as HOST:PORT,..."),
    Option("command-config", "String: config file", "A file with the client's properties."),
    Option("fetch-size", "Integer: bytes", "Bytes of one fetch.", "1048576"),
    Option("max-wait-ms", "Integer: ms", "Milliseconds that a fetch may wait.", "1000"),
    Option("topics-include", "String: Java regex (String)", "Regular expression of topics to check.", ".*"),
    Option("time", "Long: timestamp/-1(latest)/-2(earliest)", "Timestamp to start at; -1 is the end, -2 the beginning.", "-1"),
    Option("report-interval-ms", "Long: ms", "Milliseconds between reports.", "30000"),
    Option("rounds", "Integer: count", "Stop after this number of rounds; 0 runs until Ctrl-C.", "0"),
))  # fmt: skip
_DEBUGGER = -2
"""A replica id that reads everything and changes nothing (Kafka's DEBUGGING_CONSUMER_ID)."""
Partition = tuple[str, int]
Answer = tuple[int, list[BatchHeader]]
"""A replica's high watermark, and its batches from where the comparison stands."""


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
    starts = list_offsets(cluster, dict.fromkeys(replicas, start))
    offsets = {place: row.offset for place, row in starts.items() if isinstance(row, FoundOffset) and row.offset >= 0}
    print(f"{_now()}: verification process is started", flush=True)
    interval, rounds, done = int(options.required("report-interval-ms")) / 1000, options.integer("rounds") or 0, 0
    reported = time.monotonic()
    while True:
        fetched = _fetch_all(cluster, replicas, offsets, options)
        lag, place = -1, ("", 0)
        for partition, answers in fetched.items():
            offsets[partition] = _compare(partition, answers, offsets[partition])
            behind = max(high_watermark for high_watermark, _ in answers.values()) - offsets[partition]
            if behind > lag:
                lag, place = behind, partition
        done += 1
        if time.monotonic() - reported > interval or done == rounds:
            where = f"{_words(place)} at offset {offsets.get(place, -1)} among {len(replicas)} partitions"
            print(f"{_now()}: max lag is {lag} for partition {where}", flush=True)
            reported = time.monotonic()
        if done == rounds:
            return


def _words(place: Partition) -> str:
    return f"{place[0]}-{place[1]}"


def _compare(place: Partition, answers: dict[int, Answer], offset: int) -> int:
    """Compares batches up to the high watermark, while every replica has one. Returns the next offset to compare."""
    (first, (_, batches)), *other_answers = answers.items()
    for number, batch in enumerate(batches):
        for replica, (high_watermark, theirs) in answers.items():
            if number >= len(theirs) or theirs[number].last_offset >= high_watermark:
                return offset
            if theirs[number].last_offset != batch.last_offset:
                print(
                    f"{_now()}: partition {_words(place)}: replica {first}'s offset {batch.last_offset} doesn't match "
                    f"replica {replica}'s offset {theirs[number].last_offset}", flush=True,
                )  # fmt: skip
                raise Exit(1)
        for replica, (_, theirs) in other_answers:
            mine, its = batch.crc & 0xFFFFFFFF, theirs[number].crc & 0xFFFFFFFF
            if mine != its:
                print(
                    f"{_now()}: partition {_words(place)} has unmatched checksum at offset {batch.last_offset}; "
                    f"replica {first}'s checksum {mine}; replica {replica}'s checksum {its}", flush=True,
                )  # fmt: skip
        offset = batch.next_offset
    return offset


def _fetch_all(
    cluster: Cluster, replicas: dict[Partition, tuple[int, ...]], offsets: dict[Partition, int], options: Options
) -> dict[Partition, dict[int, Answer]]:
    """What every broker has of its partitions from where they have been compared to.

    Only the first broker waits for news; the others are asked when it has answered.
    """
    answers_by_partition: dict[Partition, dict[int, Answer]] = {place: {} for place in offsets}
    wait = options.integer("max-wait-ms") or 0
    for broker in sorted({broker for place in offsets for broker in replicas[place]}):
        fetch_offsets = {place: offset for place, offset in offsets.items() if broker in replicas[place]}
        for place, answer in _fetch(cluster, broker, fetch_offsets, options.integer("fetch-size") or 1 << 20, wait):
            answers_by_partition[place][broker] = answer
        wait = 0
    return answers_by_partition


def _fetch(
    cluster: Cluster, broker: int, fetch_offsets: dict[Partition, int], size: int, wait_ms: int
) -> Iterator[tuple[Partition, Answer]]:
    from ottla.client.errors import check
    from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
    from ottla.protocol.generated.fetch_response import FetchResponse

    rows: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in fetch_offsets.items():
        row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)
        rows.setdefault(topic, []).append(row)
    request = FetchRequest(
        replica_id=_DEBUGGER, max_wait_ms=wait_ms, min_bytes=1, max_bytes=(1 << 31) - 1,
        topics=[FetchTopic(topic=topic, partitions=partitions) for topic, partitions in rows.items()],
    )  # fmt: skip
    answer = cluster.node_call("fetch", broker, request, FetchResponse, 12)  # above, topics have ids instead of names
    check(answer.error_code)
    for topic_row in answer.responses:
        for part in topic_row.partitions:
            check(part.error_code)
            batches = [header for _, header in iterate_batches(bytes(part.records or b""))]
            yield (topic_row.topic, part.partition_index), (part.high_watermark, batches)
