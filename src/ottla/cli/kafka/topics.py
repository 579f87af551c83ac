"""kafka-topics: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from ottla.cli.kafka.admin import BOOTSTRAP_SERVER, COMMAND_CONFIG, REFUSED, cluster_of, include_pattern
from ottla.cli.kafka.options import Exit, Option, OptionParser, Options
from ottla.cli.kafka.topics_describe import describe
from ottla.client.cluster import Cluster
from ottla.client.topics import create_partitions, create_topic, delete_topic, describe_topics, list_topics
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topic_names import has_collision_chars

ACTIONS = ("create", "list", "alter", "describe", "delete")
REPORTS = (
    "under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions", "unavailable-partitions",
)  # fmt: skip
PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("list", text="List all topics."),
    Option("create", text="Create a topic."),
    Option("delete", text="Delete topics."),
    Option("alter", text="Change the number of partitions and their replicas; kafka-configs changes settings."),
    Option("describe", text="Show topics and their partitions."),
    Option("topic", "String: topic", "The topic; a regular expression too, except with --create."),
    Option("topic-id", "String: topic-id", "The id of the topic to describe."),
    Option("config", "String: name=value", "A setting of the topic to create; may be repeated."),
    Option("delete-config", "String: name", "No longer supported."),
    Option("partitions", "Integer: # of partitions", "Number of partitions; a later change moves keys to other partitions."),
    Option("replication-factor", "Integer: replication factor", "Number of replicas of each partition."),
    Option("replica-assignment", "String: broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , ...",
           "Broker ids of each partition's replicas."),
    Option("under-replicated-partitions", text="Show only partitions with fewer in-sync replicas than replicas."),
    Option("unavailable-partitions", text="Show only partitions without a leader that is alive."),
    Option("under-min-isr-partitions", text="Show only partitions with fewer in-sync replicas than the minimum."),
    Option("at-min-isr-partitions", text="Show only partitions with just the minimum of in-sync replicas."),
    Option("topics-with-overrides", text="Show only topics with settings that differ from the defaults."),
    Option("if-exists", text="Do nothing when the topic does not exist."),
    Option("if-not-exists", text="Do nothing when the topic exists."),
    Option("exclude-internal", text="Exclude internal topics."),
    Option("partition-size-limit-per-response", "Integer: maximum number of partitions per response",
           "Most partitions of one response."),
))  # fmt: skip
_NOT_WITH = {
    "config": ("alter", "create"),
    "partitions": ("alter", "create"),
    "replication-factor": ("create",),
    "replica-assignment": ("alter", "create"),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
}
_TOPIC_LEVEL = ("alter", "create", "describe", "list", "delete")
_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


def main(arguments: list[str]) -> int:
    try:
        about = "reate, delete, describe, or change a topic."
        options = PARSER.begin(arguments, f"This tool helps to c{about}", f"C{about}")
        _check(options)
        cluster = cluster_of(options)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1
    with cluster:
        try:
            _run(cluster, options)
        except REFUSED as reason:
            print(f"Error while executing topic command : {reason}")
            return 1
    return 0


def _check(options: Options) -> None:
    if sum(options.has(action) for action in ACTIONS) != 1:
        options.usage("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if options.has("delete-config"):
        print(
            "delete-config option is no longer supported and deprecated since version 4.0. "
            "The config will be fully removed in future releases.",
            file=sys.stderr,
        )
    if not options.has("bootstrap-server"):
        raise ValueError("--bootstrap-server must be specified")
    if options.has("describe") and options.has("if-exists"):
        if not options.has("topic") and not options.has("topic-id"):
            options.usage("--topic or --topic-id is required to describe a topic")
        if options.has("topic") and options.has("topic-id"):
            print(
                "Only topic id will be used when both --topic and --topic-id are specified and topicId is not Uuid.ZERO_UUID"
            )
    if not options.has("list") and not options.has("describe"):
        options.require("topic")
    if options.has("alter"):
        if options.has("config"):
            options.usage(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]"'
                " (To alter topic configurations, the kafka-configs tool can be used.)"
            )
        options.require("partitions")
    for name, allowed in _NOT_WITH.items():
        options.refuse(name, (other for other in _TOPIC_LEVEL if other not in allowed))
    if options.has("create"):
        options.refuse("replica-assignment", ("partitions", "replication-factor"))
    for report in REPORTS:
        excluded = [other for other in (*_TOPIC_LEVEL, *REPORTS) if other not in {"describe", report}]
        options.refuse(report, [*excluded, "topics-with-overrides"])
    options.refuse("topics-with-overrides", [*(name for name in _TOPIC_LEVEL if name != "describe"), *REPORTS])


def _run(cluster: Cluster, options: Options) -> None:
    if options.has("create"):
        _create(cluster, options)
    elif options.has("alter"):
        _alter(cluster, options)
    elif options.has("list"):
        print("\n".join(_matching(cluster, options)))
    elif options.has("describe"):
        describe(cluster, options, _matching(cluster, options) if not options.has("topic-id") else [])
    else:
        _delete(cluster, options)


def _matching(cluster: Cluster, options: Options) -> list[str]:
    pattern = options.value("topic")
    chosen = include_pattern(pattern) if pattern is not None else None
    return [
        topic.name or ""
        for topic in list_topics(cluster)
        if (chosen is None or chosen.fullmatch(topic.name or ""))
        and not (topic.is_internal and options.has("exclude-internal"))
    ]


def _existing(cluster: Cluster, options: Options) -> list[str]:
    matching_topics = _matching(cluster, options)
    if not matching_topics and options.value("topic") and not options.has("if-exists"):
        raise ValueError(f"Topic '{options.value('topic')}' does not exist as expected")
    return matching_topics


def _create(cluster: Cluster, options: Options) -> None:
    name = options.required("topic")
    partitions, factor = options.integer("partitions"), options.integer("replication-factor")
    assignment = parse_assignment(options.value("replica-assignment") or "")
    configs: dict[str, str] = {}
    for pair in options.values("config"):
        words = [word for word in re.split(r"\s*=\s*", pair) if word]
        if len(words) != 2:
            raise ValueError(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        configs[words[0].strip()] = words[1].strip()
    if factor is not None and not 1 <= factor <= 32767:
        raise ValueError("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise ValueError("The partitions must be greater than 0")
    if has_collision_chars(name):
        print(_WARNING)
    try:
        create_topic(
            cluster,
            name,
            partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if factor is None else factor,
            assignment=dict(enumerate(assignment)),
            configs=configs,
        )
    except KafkaError as reason:
        if reason.code != ErrorCode.TOPIC_ALREADY_EXISTS or not options.has("if-not-exists"):
            raise
    else:
        print(f"Created topic {name}.")


def parse_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3` as the brokers of each partition."""
    assignment: list[list[int]] = []
    for index, part in enumerate(text.split(",") if text else ()):
        brokers = []
        for word in part.split(":"):
            try:
                brokers.append(int(word.strip()))
            except ValueError:
                raise ValueError(f'For input string: "{word.strip()}"') from None
        twice = dict.fromkeys(broker for broker in brokers if brokers.count(broker) > 1)
        if twice:
            listed = ",".join(map(str, twice))
            raise ValueError(f"Partition replica lists may not contain duplicate entries: {listed}")
        assignment.append(brokers)
        if len(brokers) != len(assignment[0]):
            raise ValueError(f"Partition {index} has different replication factor: {brokers}")
    return assignment


def _alter(cluster: Cluster, options: Options) -> None:
    names = _existing(cluster, options)
    count = options.integer("partitions") or 0
    assignment: Sequence[Sequence[int]] = parse_assignment(options.value("replica-assignment") or "")
    for topic in describe_topics(cluster, names):
        added = assignment[len(topic.partitions) :] if assignment else None
        create_partitions(cluster, topic.name, count, added)


def _delete(cluster: Cluster, options: Options) -> None:
    for name in _existing(cluster, options):
        delete_topic(cluster, name)
