"""kafka-streams-groups: groups of Kafka Streams (KIP-1071) listed, described and deleted."""

from __future__ import annotations

import sys

from ottla.cli.kafka.admin import BOOTSTRAP_SERVER, COMMAND_CONFIG, REFUSED, command_properties, open_cluster
from ottla.cli.kafka.consumer_groups import print_error
from ottla.cli.kafka.group_tables import list_kind, print_rows, usage_of_actions
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.cluster import Cluster
from ottla.client.errors import check, java_name
from ottla.client.groups import committed_offsets, coordinator_of, delete_group, list_groups
from ottla.client.offsets import end_offsets
from ottla.model.errors import KafkaError
from ottla.protocol.generated.streams_group_describe_response import DescribedGroup

PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("list", text="List streams groups."),
    Option("describe", text="Show a group's offsets, its members (--members) or its state (--state)."),
    Option("delete", text="Delete groups."),
    Option("reset-offsets", text="As kafka-consumer-groups does it, with --input-topic."),
    Option("delete-offsets", text="Delete a group's offsets of topics."),
    Option("group", "String: streams group", "The group; may be repeated."),
    Option("all-groups", text="All streams groups."),
    Option("input-topic", "String: topic", "A topic that the group reads."),
    Option("all-input-topics", text="All topics that the group reads."),
    Option("timeout", "Long: timeout (ms)", "How long each call may take.", "30000"),
    Option("dry-run", text="Only show what would be done."),
    Option("execute", text="Do it."),
    *(Option(name, "String", "Where to reset to.") for name in ("to-datetime", "by-duration", "from-file")),
    *(Option(name, "Long", "Where to reset to.") for name in ("to-offset", "shift-by")),
    *(Option(name, text="Where to reset to.") for name in ("to-earliest", "to-latest", "to-current", "export")),
    Option("members", text="With --describe: the members."),
    Option("offsets", text="With --describe: the offsets (the default)."),
    Option("state", "[String]", "With --describe: the state; with --list: show it, or only groups in it."),
    Option("verbose", text="More columns."),
    Option("delete-all-internal-topics", text="Accepted."),
    Option("delete-internal-topic", "String", "Accepted."),
))  # fmt: skip
_STATES = {
    name.lower(): name for name in ("Assigning", "Dead", "Empty", "Initializing", "NotReady", "Reconciling", "Stable")
}


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "This tool helps to list, or describe streams groups.")
        options.require("bootstrap-server")
        usage_of_actions(
            options,
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, or --delete-offsets.",
        )
        if options.has("reset-offsets") or options.has("delete-offsets"):
            return _as_consumer_group(arguments)
        properties = {"default.api.timeout.ms": options.value("timeout") or "30000", **command_properties(options)}
        with open_cluster(options.required("bootstrap-server"), properties) as cluster:
            _act(cluster, options)
    except Exit as end:
        return end.code
    except (OptionError, ValueError) as reason:
        print(reason, file=sys.stderr)
        return 1
    except REFUSED as reason:
        print_error(f"Executing streams group command failed due to {java_name(reason)}: {reason}")
        return 1
    return 0


def _as_consumer_group(arguments: list[str]) -> int:
    """A streams group commits as consumers do, so that tool's reset and deletion of offsets fit."""
    from ottla.cli.kafka.consumer_groups import main as consumer_groups

    renamed = {"--input-topic": "--topic", "--all-input-topics": "--all-topics"}
    return consumer_groups([renamed.get(word, word) for word in arguments])


def _act(cluster: Cluster, options: Options) -> None:
    if options.has("list"):
        list_kind(cluster, options, "streams", _STATES)
        return
    known = {group.group_id for group in list_groups(cluster, types=["streams"])}
    groups = sorted(known) if options.has("all-groups") else list(dict.fromkeys(options.values("group")))
    if options.has("delete"):
        _delete(cluster, groups, known)
        return
    for group in groups:
        _describe(cluster, options, group)


def _delete(cluster: Cluster, groups: list[str], known: set[str]) -> None:
    failed: dict[str, str] = {}
    for group in groups:
        if group not in known:
            failed[group] = (
                f"java.lang.IllegalArgumentException: Group '{group}' does not exist or is not a streams group."
            )
            continue
        try:
            delete_group(cluster, group)
        except KafkaError as reason:
            failed[group] = f"{java_name(reason)}: {reason}"
    if not failed:
        print(f"Deletion of requested streams groups ('{', '.join(groups)}') was successful.")
        return
    print_error("Deletion of some streams groups failed:")
    for group, words in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {words}")


def _described(cluster: Cluster, group: str) -> DescribedGroup:
    from ottla.protocol.generated.streams_group_describe_request import StreamsGroupDescribeRequest
    from ottla.protocol.generated.streams_group_describe_response import StreamsGroupDescribeResponse

    answer = cluster.coordinator_call(
        "describeStreamsGroups",
        group,
        StreamsGroupDescribeRequest([group]),
        StreamsGroupDescribeResponse,
        lambda a: a.groups[0].error_code,
    )
    check(answer.groups[0].error_code, answer.groups[0].error_message)
    return answer.groups[0]


def _describe(cluster: Cluster, options: Options, group: str) -> None:
    found = _described(cluster, group)
    if options.has("state"):
        host, port, node = coordinator_of(cluster, group)
        row = [group, f"{host}:{port}  ({node})", found.group_state, str(len(found.members))]
        print_rows(
            ["GROUP", "COORDINATOR (ID)", "STATE", "#MEMBERS"],
            [row],
            {"GROUP": 15, "COORDINATOR (ID)": 25, "STATE": 15},
        )
    elif options.has("members"):
        rows = []
        for member in found.members:
            tasks = [
                f"{kind}: "
                + "; ".join(f"{one.subtopology_id}:[{','.join(map(str, one.partitions))}]" for one in listed)
                for kind, listed in (
                    ("ACTIVE", member.assignment.active_tasks),
                    ("STANDBY", member.assignment.standby_tasks),
                    ("WARMUP", member.assignment.warmup_tasks),
                )
                if listed
            ]
            rows.append([group, member.member_id, member.process_id, member.client_id, " ".join(tasks) or "-"])
        print_rows(
            ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"],
            rows,
            {"GROUP": 15, "MEMBER": 15, "PROCESS": 15, "CLIENT-ID": 15},
        )
    else:
        committed = committed_offsets(cluster, group)
        ends = end_offsets(cluster, committed)
        rows = [
            [group, topic, str(partition), str(ends[topic, partition] - offset) if (topic, partition) in ends else "-"]
            for (topic, partition), offset in sorted(committed.items())
        ]
        print_rows(["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"], rows, {"GROUP": 15, "TOPIC": 15, "PARTITION": 10})
