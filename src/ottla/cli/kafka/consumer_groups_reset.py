"""`kafka-consumer-groups --reset-offsets`: every scenario, as a plan that is shown, exported or carried out."""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from ottla.cli.kafka.options import OptionError, Options
from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets, committed_offsets, describe_group
from ottla.client.offsets import no_such_name, offsets_or_raise
from ottla.client.topics import NAMELESS, list_topics
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import EARLIEST, LATEST

Partition = tuple[str, int]
Plan = dict[Partition, int]
_LISTED = (
    "shift-by", "from-file", "to-datetime", "by-duration", "to-latest", "to-current", "to-earliest", "to-offset",
)  # fmt: skip
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


def reset(cluster: Cluster, options: Options, groups: Iterable[str]) -> None:
    plans: dict[str, Plan] = {}
    for group in groups:
        state = _state(cluster, group)
        if state not in {"Empty", "Dead"}:
            print(
                f"\nError: Assignments can only be reset if the group '{group}' is inactive, "
                f"but the current state is {state}."
            )
            plans[group] = {}
            continue
        plans[group] = _plan(cluster, options, group)
        if options.has("execute"):
            commit_offsets(cluster, group, plans[group])
    if options.has("export"):
        print(_csv(plans, with_group=len(options.values("group")) != 1))
    else:
        print_plans(plans)


def _state(cluster: Cluster, group: str) -> str:
    try:
        return describe_group(cluster, group).state
    except KafkaError as reason:
        if reason.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        raise


def print_plans(plans: dict[str, Plan]) -> None:
    left = max([15, *map(len, plans)])
    middle = max([15, *(len(topic) for plan in plans.values() for topic, _ in plan)])
    if plans:
        print(f"\n{'GROUP':<{left}} {'TOPIC':<{middle}} {'PARTITION':<10} NEW-OFFSET", end="")
    for group, plan in plans.items():
        for (topic, partition), offset in sorted(plan.items()):
            print(f"\n{group:<{left}} {topic:<{middle}} {partition:<10} {offset}", end="")
    print()


def _csv(plans: dict[str, Plan], *, with_group: bool) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, plan in plans.items():
        for (topic, partition), offset in sorted(plan.items()):
            writer.writerow([group, topic, partition, offset] if with_group else [topic, partition, offset])
    return out.getvalue()


def _partitions(cluster: Cluster, options: Options, group: str) -> list[Partition]:
    from ottla.cli.kafka.consumer_groups import topic_partitions

    if options.has("all-topics"):
        return sorted(committed_offsets(cluster, group))
    if options.has("topic"):
        if "" in options.values("topic"):
            raise OptionError(NAMELESS)
        return _existing(cluster, topic_partitions(cluster, options.values("topic")))
    if not options.has("from-file"):
        options.usage("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


def _existing(cluster: Cluster, partitions: list[Partition]) -> list[Partition]:
    topics = {topic.name or "": topic.partitions for topic in list_topics(cluster)}
    there = {(name, row.partition_index) for name, rows in topics.items() for row in rows}
    if any(topic not in topics for topic, _ in partitions):
        raise OptionError(
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
            "This server does not host this topic-partition."
        )
    missing = [f"{topic}-{partition}" for topic, partition in partitions if (topic, partition) not in there]
    if missing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{",".join(missing)}" do not exist')
    return partitions


def _plan(cluster: Cluster, options: Options, group: str) -> Plan:
    partitions = _partitions(cluster, options, group)
    scenarios: dict[str, Callable[[], Plan]] = {
        "to-offset": lambda: in_range(cluster, dict.fromkeys(partitions, _long(options, "to-offset"))),
        "to-earliest": lambda: _at(cluster, partitions, EARLIEST),
        "to-latest": lambda: _at(cluster, partitions, LATEST),
        "shift-by": lambda: _shifted(cluster, group, partitions, _long(options, "shift-by")),
        "to-datetime": lambda: by_time(cluster, partitions, parse_datetime(options.value("to-datetime") or "")),
        "by-duration": lambda: by_time(cluster, partitions, before_now(options.value("by-duration") or "")),
        "from-file": lambda: _of_file(cluster, _from_file(options, group)),
        "to-current": lambda: _current(cluster, group, partitions),
    }
    chosen = next((scenario for name, scenario in scenarios.items() if options.has(name)), None)
    if chosen is None:
        listed = ", ".join(f"[{name}]" for name in _LISTED)
        options.usage(f"Option '[reset-offsets]' requires one of the following scenarios: [{listed}]")
    return chosen()


def _long(options: Options, name: str) -> int:
    text = options.value(name) or ""
    if not re.fullmatch(r"[-+]?\d+", text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise OptionError(f"Cannot parse argument '{text}' of option {name}")
    return int(text)


def _at(cluster: Cluster, partitions: Iterable[Partition], when: int) -> Plan:
    return {
        where: offset_row.offset
        for where, offset_row in offsets_or_raise(cluster, dict.fromkeys(partitions, when)).items()
    }


def _shifted(cluster: Cluster, group: str, partitions: Iterable[Partition], by: int) -> Plan:
    committed = committed_offsets(cluster, group)
    shifted: Plan = {}
    for topic, partition in partitions:
        if (topic, partition) not in committed:
            raise ValueError(
                f"Cannot shift offset for partition {topic}-{partition} since there is no current committed offset"
            )
        shifted[topic, partition] = committed[topic, partition] + by
    return in_range(cluster, shifted)


def _current(cluster: Cluster, group: str, partitions: Iterable[Partition]) -> Plan:
    committed = committed_offsets(cluster, group)
    partition_list = list(partitions)
    plan = {where: committed[where] for where in partition_list if where in committed}
    return plan | _at(cluster, [where for where in partition_list if where not in committed], LATEST)


def in_range(cluster: Cluster, requested: Plan) -> Plan:
    """Offsets outside the log are moved to its nearer end, with a warning."""
    starts, ends = _at(cluster, requested, EARLIEST), _at(cluster, requested, LATEST)
    plan: Plan = {}
    for (topic, partition), offset in requested.items():
        start, end = starts[topic, partition], ends[topic, partition]
        plan[topic, partition] = min(max(offset, start), end)
        if not start <= offset <= end:
            word, bound = ("higher than latest", end) if offset > end else ("lower than earliest", start)
            print(
                f"WARN New offset ({offset}) is {word} offset for topic partition {topic}-{partition}. "
                f"Value will be set to {bound}",
                file=sys.stderr,
            )
    return plan


def by_time(cluster: Cluster, partitions: Iterable[Partition], timestamp: int) -> Plan:
    offsets = _at(cluster, partitions, timestamp)
    late = [where for where, offset in offsets.items() if offset < 0]
    for topic, partition in late:
        print(f"\nWarn: Partition {partition} from topic {topic} is empty. Falling back to latest known offset.")
    return offsets | _at(cluster, late, LATEST)


def parse_datetime(text: str) -> int:
    """ISO 8601 with milliseconds, with or without a zone; UTC without one. OptionError in Java's words."""
    _, middle, clock = text.partition("T")
    if not middle or not clock:
        raise OptionError(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    if not re.search(r"[-+Z]", clock):
        text += "Z"
    match = re.fullmatch(r"(\d{4}-\d\d?-\d\d?T\d\d?:\d\d?:\d\d?)\.(\d{1,3})(?:Z|([+-]\d\d)(?::?(\d\d))?)", text)
    try:
        if not match:
            raise ValueError
        moment = datetime.strptime(match[1] + (match[3] or "+00") + (match[4] or "00"), "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        raise OptionError(f'java.text.ParseException: Unparseable date: "{text}"') from None
    return int(moment.astimezone(UTC).timestamp()) * 1000 + int(match[2])


def before_now(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if not match or not any(match.groups()[1:]):
        raise OptionError("Text cannot be parsed to a Duration")
    days, hours, minutes = (int(match[index] or 0) for index in (2, 3, 4))
    seconds = days * 86400 + hours * 3600 + minutes * 60 + float(match[5] or 0)
    return int(time.time() * 1000 - (-seconds if match[1] == "-" else seconds) * 1000)


def _of_file(cluster: Cluster, requested: Plan) -> Plan:
    topics = {topic.name for topic in list_topics(cluster)}
    for topic, partition in requested:
        if not topic:
            raise OptionError(
                "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.InvalidTopicException: "
                f"{no_such_name(topic, partition).message}"
            )
        if topic not in topics:
            raise OptionError(
                "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
                f"Failed to fetch metadata for partition {topic}-{partition} because metadata for topic `{topic}` could "
                "not be found"
            )
    return in_range(cluster, requested)


def _from_file(options: Options, group: str) -> Plan:
    """TOPIC,PARTITION,OFFSET, with the group before them when it has four columns; what is left out is 0, as in Java."""
    path = options.required("from-file")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise OptionError(f"java.io.IOException: Unable to read file {path}") from None
    rows = [[word.strip() for word in row] for row in csv.reader(io.StringIO(text)) if row]
    if not rows:
        raise OptionError(
            "com.fasterxml.jackson.databind.exc.MismatchedInputException: No content to map due to end-of-input"
        )
    plans: dict[str, Plan] = {}
    for words in rows:
        owner, row = (words[0], words[1:]) if len(words) == 4 else (group, words[:3])
        topic, partition, offset = (*row, "0", "0")[:3]
        if re.fullmatch(r"-?\d+", partition) and re.fullmatch(r"-?\d+", offset):
            plans.setdefault(owner, {})[topic, int(partition)] = int(offset)
    if group not in plans:
        print(f"\nError: No reset plan for group {group} found")
    return plans.get(group, {})
