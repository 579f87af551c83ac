"""kafka-streams-groups: groups of Kafka Streams (KIP-1071) listed, described and deleted."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from ottla.cli.kafka.admin import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    REFUSED,
    ClientNotMade,
    command_properties_or_usage,
    open_cluster,
)
from ottla.cli.kafka.consumer_groups import print_error
from ottla.cli.kafka.group_tables import StateError, failed_words, list_kind, usage_of_actions
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.cli.kafka.streams_tables import print_members, print_offsets, print_state, subtopologies
from ottla.client.cluster import Cluster
from ottla.client.errors import CallTimeout, java_name
from ottla.client.groups import delete_group, list_groups
from ottla.client.streams_groups import describe_streams_group
from ottla.client.topics import delete_topic
from ottla.model.errors import KafkaError

PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("list", text="List streams groups."),
    Option("describe", text="Show a group's offsets, its members (--members) or its state (--state)."),
    Option("delete", text="Delete groups."),
    Option("reset-offsets", text="Set a group's offsets of --input-topic, as kafka-consumer-groups does."),
    Option("delete-offsets", text="Delete a group's offsets of topics."),
    Option("group", "String: streams group", "The group; may be repeated."),
    Option("all-groups", text="All streams groups."),
    Option("input-topic", "String: topic", "A topic that the group reads."),
    Option("all-input-topics", text="All topics that the group reads."),
    Option("timeout", "Long: timeout (ms)", "Milliseconds that each call may last.", "30000"),
    Option("dry-run", text="Only print the plan."),
    Option("execute", text="Do it."),
    *(Option(name, "String", "New position of the offsets.") for name in ("to-datetime", "by-duration", "from-file")),
    *(Option(name, "Long", "New position of the offsets.") for name in ("to-offset", "shift-by")),
    *(Option(name, text="New position of the offsets.") for name in ("to-earliest", "to-latest", "to-current", "export")),
    Option("members", text="With --describe: the members."),
    Option("offsets", text="With --describe: the offsets (the default)."),
    Option("state", "[String]", "With --describe: the state; with --list: show it, or only groups in it."),
    Option("verbose", text="More columns."),
    Option("delete-all-internal-topics", text="Delete the group's internal topics too (with --delete or --reset-offsets)."),
    Option("delete-internal-topic", "String", "Internal topic to delete with --reset-offsets."),
))  # fmt: skip
_INTERNAL = re.compile(
    r"-(changelog|repartition|subscription-(registration|response)-topic)$|-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic$"
)
"""How Kafka Streams names the topics that it makes."""
_STATES = {name.lower(): name for name in ("Dead", "Stable", "Assigning", "Empty", "Reconciling", "NotReady")}


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "This tool helps to list, or describe streams groups.")
        options.require("bootstrap-server")
        usage_of_actions(
            options,
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, or --delete-offsets.",
        )
        _check_offsets(options)
        properties = {
            "default.api.timeout.ms": options.value("timeout") or "30000",
            **command_properties_or_usage(options),
        }
        with open_cluster(options.required("bootstrap-server"), properties) as cluster:
            if options.has("reset-offsets") or options.has("delete-offsets"):
                return _change_offsets(cluster, options, arguments)
            _act(cluster, options)
    except Exit as end:
        return end.code
    except StateError as reason:
        print(f"{reason}\n{PARSER.help_text()}", file=sys.stderr)
        return 1
    except (OptionError, ValueError) as reason:
        print(reason, file=sys.stderr)
        return 1
    except (CallTimeout, ClientNotMade) as reason:
        print_error(f"Executing streams group command failed due to {failed_words(reason)}")
        return 1
    except REFUSED as reason:
        wrapped = "java.util.concurrent.ExecutionException: " if "--reset-offsets" in arguments else ""
        print_error(f"Executing streams group command failed due to {wrapped}{java_name(reason)}: {reason}")
        return 1
    return 0


def _check_offsets(options: Options) -> None:
    if options.has("reset-offsets") and not options.has("execute") and not options.has("dry-run"):
        options.usage("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if options.has("delete-offsets") and not (options.has("input-topic") or options.has("all-input-topics")):
        options.usage(
            "Option [delete-offsets] takes the [group] and one of these options: [all-input-topics], [input-topic]"
        )


def _change_offsets(cluster: Cluster, options: Options, arguments: list[str]) -> int:
    """A streams group commits as consumers do, so that tool's reset and deletion of offsets fit."""
    from ottla.cli.kafka.consumer_groups import main as consumer_groups

    words, left = [], iter(arguments)
    for word in left:
        if word == "--all-input-topics":
            described = describe_streams_group(cluster, options.required("group"))
            sources = {name for subtopology in subtopologies(described) for name in subtopology.source_topics}
            words += [part for name in sorted(sources) for part in ("--topic", name)]
        elif word == "--delete-internal-topic":
            next(left, None)
        elif word != "--delete-all-internal-topics":
            words.append("--topic" if word == "--input-topic" else word)
    code = consumer_groups(words)
    if code == 0 and options.has("reset-offsets") and options.has("execute"):
        for group in options.values("group"):
            _delete_topics(cluster, _internal_topics(cluster, options, group))
    return code


def _internal_topics(cluster: Cluster, options: Options, group: str) -> list[str]:
    """Those that the caller wants to go with the group: only what is named as Kafka Streams names its own."""
    if not options.has("delete-all-internal-topics"):
        return options.values("delete-internal-topic")
    internal_topics = []
    described = describe_streams_group(cluster, group)
    sources = {name for subtopology in subtopologies(described) for name in subtopology.source_topics}
    for subtopology in subtopologies(described):
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            if topic.name.startswith(f"{group}-") and _INTERNAL.search(topic.name):
                internal_topics += [topic.name] if topic.name not in sources else []
            else:
                print_error(
                    f"The internal topic '{topic.name}' is not inferred as internal and thus will not be deleted with "
                    f"the group '{group}'."
                )
    return list(dict.fromkeys(internal_topics))


def _delete_topics(cluster: Cluster, names: list[str]) -> None:
    for name in names:
        delete_topic(cluster, name)


def _act(cluster: Cluster, options: Options) -> None:
    if options.has("list"):
        list_kind(cluster, options, "streams", _STATES)
        return
    states_by_group = {group.group_id: group.group_state for group in list_groups(cluster, types=["streams"])}
    groups = sorted(states_by_group) if options.has("all-groups") else list(dict.fromkeys(options.values("group")))
    if options.has("delete"):
        _delete(cluster, options, groups, states_by_group)
        return
    for group in groups:
        described_group, verbose = describe_streams_group(cluster, group), options.has("verbose")
        if options.has("members"):
            print_members(described_group, verbose=verbose)
        elif options.has("state"):
            print_state(cluster, described_group, verbose=verbose)
        else:
            print_offsets(cluster, described_group, verbose=verbose)


def _delete(cluster: Cluster, options: Options, groups: list[str], states_by_group: Mapping[str, str]) -> None:
    failed: dict[str, str] = {}
    deleted: list[str] = []
    topics: dict[str, list[str]] = {}
    for group in groups:
        if group not in states_by_group:
            failed[group] = (
                f"java.lang.IllegalArgumentException: Group '{group}' does not exist or is not a streams group."
            )
            continue
        if states_by_group[group] != "Empty":
            name = "org.apache.kafka.common.errors.GroupNotEmptyException"
            failed[group] = f"{name}: Streams group '{group}' is not EMPTY."
            continue
        topics[group] = _internal_topics(cluster, options, group)
        try:
            delete_group(cluster, group)
            deleted.append(group)
        except KafkaError as reason:
            failed[group] = f"{java_name(reason)}: {reason}"
    names = "', '".join(deleted)
    if not failed:
        print(f"Deletion of requested streams groups ('{names}') was successful.")
    else:
        print_error("Deletion of some streams groups failed:")
        for group, words in failed.items():
            print(f"* Group '{group}' could not be deleted due to: {words}")
        if deleted:
            print(f"\nThese streams groups were deleted successfully: '{names}'.")
    with_topics = [group for group in deleted if topics[group]]
    for group in with_topics:
        _delete_topics(cluster, topics[group])
    if with_topics:
        names = "', '".join(with_topics)
        print(f"Deletion of associated internal topics of the streams groups ('{names}') was successful.")
