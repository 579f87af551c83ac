"""kafka-get-offsets: offsets of partitions, by time."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from ottla.cli.kafka.admin import COMMAND_CONFIG, REFUSED, cluster_of, include_pattern
from ottla.cli.kafka.options import Exit, Option, OptionParser, Options, is_integer
from ottla.client.cluster import Cluster
from ottla.client.errors import CallTimeout, java_name
from ottla.client.offsets import list_offsets
from ottla.client.topics import list_topics
from ottla.model.errors import ErrorCode, KafkaError

PARSER = OptionParser((
    Option("bootstrap-server", "String: HOST1:PORT1,...,HOST3:PORT3", "REQUIRED. Brokers, as HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("topic-partitions", "String: topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
           "Patterns of topics with partitions or ranges of them."),
    Option("topic", "String: topic", "Topic, or a regular expression of topics."),
    Option("partitions", "String: partition ids", "Partitions, as 0,1,..."),
    Option("time", "String: <timestamp> / -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / "
           "-5 or latest-tiered / -6 or earliest-pending-upload", "Which offset.", "latest"),
    Option("exclude-internal-topics", text="Exclude internal topics."),
))  # fmt: skip
_TIMES = {
    "latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5,
    "earliest-pending-upload": -6,
}  # fmt: skip
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
Filter = Callable[[str, int], bool]


class GetOffsetsError(Exception):
    """A complaint that needs no more words."""


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "An interactive shell for getting topic-partition offsets.")
        options.require("bootstrap-server")
        _run(options)
    except Exit as end:
        return end.code
    except (*REFUSED, GetOffsetsError) as reason:
        kind = f"{java_name(reason)}: " if isinstance(reason, CallTimeout) else ""
        print(f"Error occurred: {kind}{reason}", file=sys.stderr)
        return 1
    return 0


def _run(options: Options) -> None:
    if options.has("topic-partitions") and (options.has("topic") or options.has("partitions")):
        raise GetOffsetsError("--topic-partitions cannot be used with --topic or --partitions")
    when = _time(options.value("time") or "latest")
    chosen = _filter(options)
    with cluster_of(options) as cluster:
        partitions = [
            (topic.name or "", row.partition_index)
            for topic in list_topics(cluster)
            if not (topic.is_internal and options.has("exclude-internal-topics"))
            for row in sorted(topic.partitions, key=lambda row: row.partition_index)
            if chosen(topic.name or "", row.partition_index)
        ]
        if not partitions:
            raise GetOffsetsError("Could not match any topic-partitions with the specified filters")
        _print(cluster, partitions, when)


def _print(cluster: Cluster, partitions: list[tuple[str, int]], when: int) -> None:
    answers = list_offsets(cluster, dict.fromkeys(partitions, when))
    for topic, partition in sorted(partitions):
        answer = answers[topic, partition]
        if isinstance(answer, KafkaError):
            if answer.code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}:
                print(
                    f"Skip getting offsets for topic-partition {topic}:{partition} due to error: {answer}",
                    file=sys.stderr,
                )
                continue
            raise GetOffsetsError(f"Error while getting end offsets for topic-partition {topic}:{partition}")
        if answer.offset >= 0:
            print(f"{topic}:{partition}:{answer.offset}")


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    if not is_integer(text, 64):
        listed = " / ".join(f"{number} or {name}" for name, number in _TIMES.items())
        raise GetOffsetsError(
            f"Malformed time argument {text}. Please use {listed}, or a specified long format timestamp"
        )
    return int(text)


def _filter(options: Options) -> Filter:
    if (text := options.value("topic-partitions")) is not None:
        rules = [_rule(part) for part in text.split(",")]
        return lambda topic, partition: any(rule(topic, partition) for rule in rules)
    topic_pattern = options.value("topic")
    pattern = include_pattern(".*" if topic_pattern is None else topic_pattern)
    partition_ids: set[int] | None = None
    if (listed := options.value("partitions")) is not None:
        words = [word.strip() for word in listed.split(",") if word.strip()]
        if not all(map(is_integer, words)):
            raise GetOffsetsError(
                f"--partitions expects a comma separated list of numeric partition ids, but received: {listed}"
            )
        partition_ids = {int(word) for word in words} or None
    return lambda topic, partition: (
        bool(pattern.fullmatch(topic)) and (partition_ids is None or partition in partition_ids)
    )


def _rule(text: str) -> Filter:
    match = _RULE.fullmatch(text)
    if not match:
        raise GetOffsetsError(f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}")
    pattern = include_pattern(match[1] or ".*")
    exact, low, high = match[2], match[3], match[4]
    for number in filter(None, (exact, low, high)):
        if not is_integer(number):
            raise GetOffsetsError(f'For input string: "{number}"')

    def fits(topic: str, partition: int) -> bool:
        if not pattern.fullmatch(topic):
            return False
        if exact:
            return partition == int(exact)
        return int(low or 0) <= partition < (int(high) if high else 1 << 31)

    return fits
