"""kafka-share-groups: share groups listed, described, reset and deleted."""

from __future__ import annotations

import sys

from ottla.cli.kafka.admin import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    REFUSED,
    ClientNotMade,
    command_properties_or_usage,
    open_cluster,
)
from ottla.cli.kafka.consumer_groups import print_error, topic_partitions
from ottla.cli.kafka.consumer_groups_reset import by_time, parse_datetime, print_plans
from ottla.cli.kafka.group_tables import ACTIONS, StateError, failed_words, list_kind, print_rows
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.cluster import Cluster
from ottla.client.errors import CallTimeout, java_name
from ottla.client.groups import coordinator_of, delete_group, list_groups
from ottla.client.offsets import offsets_or_raise
from ottla.client.share_groups import (
    alter_share_offsets,
    delete_share_offsets,
    describe_share_group,
    share_offsets,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import EARLIEST, LATEST

PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("list", text="List share groups."),
    Option("describe", text="Show a group's offsets, its members (--members) or its state (--state)."),
    Option("delete", text="Delete groups."),
    Option("reset-offsets", text="Set a group's start offsets."),
    Option("delete-offsets", text="Delete a group's offsets of topics."),
    Option("group", "String: share group", "The group; may be repeated."),
    Option("all-groups", text="All share groups."),
    Option("topic", "String: topic", "The topic, or TOPIC:0,1; may be repeated."),
    Option("all-topics", text="All topics of the group."),
    Option("timeout", "Long: timeout (ms)", "Milliseconds that each call may last.", "30000"),
    Option("dry-run", text="Only print the plan."),
    Option("execute", text="Do it."),
    Option("to-datetime", "String: datetime", "Reset to a time: YYYY-MM-DDThh:mm:ss.sss"),
    Option("to-earliest", text="Reset to the earliest offset."),
    Option("to-latest", text="Reset to the latest offset."),
    Option("members", text="With --describe: the members."),
    Option("offsets", text="With --describe: the offsets (the default)."),
    Option("state", "[String]", "With --describe: the state; with --list: show it, or only groups in it."),
    Option("verbose", text="More columns."),
))  # fmt: skip
_STATES = {"empty": "Empty", "stable": "Stable", "dead": "Dead"}
_FAILED = "Executing share group command failed due to"


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "This tool helps to list, describe, reset and delete share groups.")
        options.require("bootstrap-server")
        _check(options)
        properties = {
            "default.api.timeout.ms": options.value("timeout") or "30000",
            **command_properties_or_usage(options),
        }
        try:
            with open_cluster(options.required("bootstrap-server"), properties) as cluster:
                return _act(cluster, options)
        except OptionError as reason:
            print_error(f"{_FAILED} {reason}")
            return 0
    except Exit as end:
        return end.code
    except OptionError as reason:
        print(reason, file=sys.stderr)
        return 1
    except StateError as reason:
        print(f"{reason}\n{PARSER.help_text()}", file=sys.stderr)
        return 1
    except (CallTimeout, ClientNotMade) as reason:
        print_error(f"{_FAILED} {failed_words(reason)}")
        return 0
    except KafkaError as reason:
        bare = reason.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        print_error(f"{_FAILED} {reason}" if bare else f"{_FAILED} {java_name(reason)}: {reason}")
        return 0
    except REFUSED as reason:
        print_error(f"{_FAILED} {java_name(reason)}: {reason}")
        return 0


def _check(options: Options) -> None:
    """Kafka's rules for what goes with what, in its order."""
    if not any(map(options.has, ACTIONS)):
        options.usage(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets."
        )
    if options.has("verbose") and not options.has("describe"):
        raise OptionError("Option(s) [verbose] are unavailable given other options on the command line")
    if options.has("describe"):
        if not options.has("group") and not options.has("all-groups"):
            options.usage("Option [describe] takes one of these options: [all-groups], [group]")
        if sum(map(options.has, ("members", "offsets", "state"))) > 1:
            options.usage("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if options.has("delete"):
        if not options.has("group") and not options.has("all-groups"):
            options.usage("Option [delete] takes the options [group] or [all-groups]")
        if options.has("group") and options.has("all-groups"):
            options.usage("Option [delete] takes either [group] or [all-groups], not both.")
        if options.has("topic"):
            options.usage("Option [delete] does not take the option: [topic]")
    if options.has("reset-offsets"):
        _check_reset(options)
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        options.usage("Option [delete-offsets] takes the following options: [group], [topic]")
    options.refuse("group", ("all-groups", "list"))
    options.refuse("all-groups", ("list",))


def _check_reset(options: Options) -> None:
    if options.has("execute") and options.has("dry-run"):
        options.usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.has("execute") and not options.has("dry-run"):
        options.usage("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not options.has("group"):
        options.usage("Option [reset-offsets] takes the option: [group]")
    if not options.has("topic") and not options.has("all-topics"):
        options.usage("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    places = ("to-datetime", "to-earliest", "to-latest")
    if not any(map(options.has, places)):
        options.usage("Option [reset-offsets] takes one of these options: [to-datetime], [to-earliest], [to-latest]")
    for index, name in enumerate(places):
        options.refuse(name, places[index + 1 :])


def _act(cluster: Cluster, options: Options) -> int:
    if options.has("list"):
        list_kind(cluster, options, "share", _STATES)
        return 0
    groups = (
        [group.group_id for group in list_groups(cluster, types=["share"])]
        if options.has("all-groups")
        else list(dict.fromkeys(options.values("group")))
    )
    if options.has("describe"):
        for group in groups:
            _describe(cluster, options, group)
        return 0
    if options.has("delete"):
        _delete(cluster, groups)
        return 0
    if options.has("reset-offsets"):
        return _reset(cluster, options, options.required("group"))
    _delete_offsets(cluster, options, groups[0])
    return 0


def _describe(cluster: Cluster, options: Options, group: str) -> None:
    described_group = describe_share_group(cluster, group)
    verbose = options.has("verbose")
    shown_members = options.has("members") or options.has("state")
    if described_group.group_state == "Empty" and shown_members:
        print(f"\nShare group '{group}' has no active members.", file=sys.stderr)
    if options.has("state"):
        host, port, node = coordinator_of(cluster, group)
        epochs = (
            [
                ("GROUP-EPOCH", str(described_group.group_epoch)),
                ("ASSIGNMENT-EPOCH", str(described_group.assignment_epoch)),
            ]
            if verbose
            else []
        )
        cells = [
            ("GROUP", group),
            ("COORDINATOR (ID)", f"{host}:{port}  ({node})"),
            ("STATE", described_group.group_state),
        ]
        cells += [*epochs, ("#MEMBERS", str(len(described_group.members)))]
        print_rows(
            [name for name, _ in cells],
            [[value for _, value in cells]],
            {"GROUP": 15, "COORDINATOR (ID)": 25, "STATE": 15, "GROUP-EPOCH": 12, "ASSIGNMENT-EPOCH": 17},
        )
    elif options.has("members"):
        if not described_group.members:
            return
        head = [
            "GROUP",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
            "#PARTITIONS",
            *(["MEMBER-EPOCH"] if verbose else []),
            "ASSIGNMENT",
        ]
        rows = []
        for member in described_group.members:
            places = member.assignment.topic_partitions
            count = sum(len(place.partitions) for place in places)
            shown = (
                ";".join(f"{place.topic_name}:{','.join(map(str, sorted(place.partitions)))}" for place in places)
                or "-"
            )
            epoch = [str(member.member_epoch)] if verbose else []
            rows.append([group, member.member_id, member.client_host, member.client_id, str(count), *epoch, shown])
        if rows:
            print_rows(
                head,
                rows,
                {"GROUP": 15, "CONSUMER-ID": 15, "HOST": 15, "CLIENT-ID": 15, "#PARTITIONS": 12, "MEMBER-EPOCH": 13},
            )
    else:
        head = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else []), "START-OFFSET", "LAG"]
        rows = []
        for (topic, partition), row in sorted(share_offsets(cluster, group).items()):
            epoch = [str(row.leader_epoch)] if verbose else []
            start = str(row.start_offset) if row.start_offset >= 0 else "-"
            rows.append([group, topic, str(partition), *epoch, start, str(row.lag) if row.lag >= 0 else "-"])
        if rows:
            print_rows(head, rows, {"GROUP": 15, "TOPIC": 15, "PARTITION": 10, "LEADER-EPOCH": 13, "START-OFFSET": 13})


def _delete(cluster: Cluster, groups: list[str]) -> None:
    share_group_ids = {group.group_id for group in list_groups(cluster, types=["share"])}
    failed: dict[str, str] = {}
    for group in groups:
        if group not in share_group_ids:
            failed[group] = f"java.lang.IllegalArgumentException: Group '{group}' is not a share group."
            continue
        try:
            delete_group(cluster, group)
        except KafkaError as reason:
            failed[group] = f"{java_name(reason)}: {reason}"
    deleted = ", ".join(repr(group) for group in groups if group not in failed)
    if not failed or groups == list(failed) == [group for group in groups if group not in share_group_ids]:
        # Kafka's tool: where no named group is a share group, nothing was left to fail
        print(f"Deletion of requested share groups ({', '.join(map(repr, groups))}) was successful.")
        return
    print_error("Deletion of some share groups failed:")
    for group, words in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {words}")
    if deleted:
        print(f"\nThese share groups were deleted successfully: {deleted}")


def _reset(cluster: Cluster, options: Options, group: str) -> int:
    described_group = describe_share_group(cluster, group)
    if described_group.group_state not in {"Empty", "Dead"}:
        print(f"Share group '{group}' is not empty.", file=sys.stderr)
        return 1
    if options.has("all-topics"):
        partitions = sorted(share_offsets(cluster, group))
    else:
        partitions = topic_partitions(cluster, options.values("topic"))
    if options.has("to-datetime"):
        plan = by_time(cluster, partitions, parse_datetime(options.required("to-datetime")))
    else:
        when = EARLIEST if options.has("to-earliest") else LATEST
        plan = {where: row.offset for where, row in offsets_or_raise(cluster, dict.fromkeys(partitions, when)).items()}
    if options.has("execute"):
        alter_share_offsets(cluster, group, plan)
    print_plans({group: plan})
    return 0


def _delete_offsets(cluster: Cluster, options: Options, group: str) -> None:
    rows = [
        [topic, "Successful" if error is None else f"Error: {error}"]
        for topic, error in sorted(delete_share_offsets(cluster, group, options.values("topic")).items())
    ]
    print_rows(["TOPIC", "STATUS"], rows, {"TOPIC": 15})
