"""kafka-consumer-groups: list, describe, delete and reset the groups of consumers."""

from __future__ import annotations

import sys

from ottla.cli.kafka.admin import BOOTSTRAP_SERVER, COMMAND_CONFIG, REFUSED, command_properties, open_cluster
from ottla.cli.kafka.group_tables import failed_words
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options, is_integer
from ottla.client.cluster import Cluster
from ottla.client.errors import CallTimeout, java_name
from ottla.client.groups import consumer_groups, delete_group, delete_offsets
from ottla.client.topics import check_named, describe_topics
from ottla.model.errors import ErrorCode, KafkaError

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS = (
    "to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "shift-by", "from-file", "to-current",
)  # fmt: skip
PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("list", text="List all consumer groups."),
    Option("describe", text="Show a group's offsets and lag, its members (--members) or its state (--state)."),
    Option("delete", text="Delete groups."),
    Option("reset-offsets", text="Set a group's offsets; needs one of --to-*, --shift-by, --by-duration, --from-file."),
    Option("delete-offsets", text="Delete a group's offsets of topics."),
    Option("validate-regex", "String: regex", "Check the syntax of a regular expression (RE2) for subscriptions."),
    Option("group", "String: consumer group", "The group; may be repeated."),
    Option("all-groups", text="All groups."),
    Option("topic", "String: topic", "The topic, or TOPIC:0,1 for some partitions; may be repeated."),
    Option("all-topics", text="All topics that the group has offsets of."),
    Option("timeout", "Long: timeout (ms)", "Milliseconds that each call may last.", "30000"),
    Option("dry-run", text="Only print the plan of --reset-offsets."),
    Option("execute", text="Execute --reset-offsets."),
    Option("export", text="Print the offsets as CSV."),
    Option("to-offset", "Long: offset", "Reset to this offset."),
    Option("from-file", "String: path to CSV file", "Reset to the offsets of a CSV file."),
    Option("to-datetime", "String: datetime", "Reset to a time: YYYY-MM-DDThh:mm:ss.sss"),
    Option("by-duration", "String: duration", "Reset to this long ago: PnDTnHnMnS"),
    Option("to-earliest", text="Reset to the earliest offset."),
    Option("to-latest", text="Reset to the latest offset."),
    Option("shift-by", "Long: number-of-offsets", "Move the offsets by n, which may be negative."),
    Option("to-current", text="Reset to the current offset."),
    Option("members", text="With --describe: the members."),
    Option("offsets", text="With --describe: offsets and lag (the default)."),
    Option("state", "[String]", "With --describe: the group's state; with --list: show it, or only groups in it."),
    Option("type", "[String]", "With --list: show the type, or only groups of it."),
    Option("verbose", text="With --describe: more columns."),
))  # fmt: skip
STATES = {
    name.lower(): name
    for name in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
}
_ABOUT = (
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, "
    "or reset consumer group offsets."
)


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, _ABOUT)
        _check(options)
        return _run(options)
    except Exit as end:
        return end.code
    except OptionError as reason:
        print(reason, file=sys.stderr)
        return 1


def print_error(message: str) -> None:
    print(f"\nError: {message}")


def _check(options: Options) -> None:
    if options.has("validate-regex"):
        return
    options.require("bootstrap-server")
    scopes = "[group], [all-groups]"
    if options.has("describe"):
        if not options.has("group") and not options.has("all-groups"):
            options.usage(f"Option [describe] takes one of these options: {scopes}")
        if sum(options.has(name) for name in ("members", "offsets", "state")) > 1:
            options.usage("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if options.value("state") is not None:
            options.usage("Option [describe] does not take a value for [state]")
    if options.has("delete"):
        if not options.has("group") and not options.has("all-groups"):
            options.usage(f"Option [delete] takes one of these options: {scopes}")
        if options.has("topic"):
            options.usage("The consumer does not support topic-specific offset deletion from a consumer group.")
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        options.usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        if options.has("dry-run") and options.has("execute"):
            options.usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not options.has("dry-run") and not options.has("execute"):
            print(
                "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will "
                "require either --dry-run or --execute to be specified. You should add the --dry-run option explicitly "
                "if you are scripting this command and want to keep the current default behavior without prompting.",
                file=sys.stderr,
            )
        if not options.has("group") and not options.has("all-groups"):
            options.usage(f"Option [reset-offsets] takes one of these options: {scopes}")
        for scenario in SCENARIOS:
            options.refuse(scenario, (other for other in SCENARIOS if other != scenario))
    options.refuse("group", ("all-groups",))
    options.refuse("group", ("list",))
    options.refuse("topic", ("list", "describe"))


def _run(options: Options) -> int:
    if sum(options.has(action) for action in ACTIONS) != 1:
        options.usage(
            f"Command must include exactly one action: {', '.join('--' + name for name in ACTIONS[:5])}, --validate-regex"
        )
    if options.has("validate-regex"):
        return _validate(options.value("validate-regex") or "")
    try:
        properties = command_properties(options)
        timeout = options.value("timeout") or "30000"
        if not is_integer(timeout, 64):
            raise OptionError(f"Cannot parse argument '{timeout}' of option timeout")
        with open_cluster(
            options.required("bootstrap-server"), {"default.api.timeout.ms": timeout, **properties}
        ) as cluster:
            _act(cluster, options)
    except Exit:
        raise
    except ValueError as reason:
        options.usage(str(reason))
    except REFUSED as reason:
        print_error(f"Executing consumer group command failed due to {_words(reason)}")
    return 0


def _words(reason: Exception) -> str:
    """Answers of the cluster come with Java's class name in front, what the client itself finds without."""
    from ottla.cli.kafka.admin import ClientNotMade

    plain = isinstance(reason, (ClientNotMade, OptionError)) or (
        isinstance(reason, KafkaError) and reason.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    if isinstance(reason, CallTimeout) and "listConsumerGroups" in str(reason):
        return failed_words(reason)
    return str(reason) if plain else f"{java_name(reason)}: {reason}"


def _act(cluster: Cluster, options: Options) -> None:
    if options.has("list"):
        _list(cluster, options)
    elif options.has("describe"):
        from ottla.cli.kafka.consumer_groups_describe import describe

        describe(cluster, options, group_ids(cluster, options))
    elif options.has("delete"):
        _delete(cluster, group_ids(cluster, options))
    elif options.has("reset-offsets"):
        from ottla.cli.kafka.consumer_groups_reset import reset

        reset(cluster, options, group_ids(cluster, options))
    else:
        _delete_offsets(cluster, options)


def group_ids(cluster: Cluster, options: Options) -> list[str]:
    if options.has("all-groups"):
        return [group.group_id for group in consumer_groups(cluster)]
    return list(dict.fromkeys(options.values("group")))


_RE2_WORDS = {
    "unterminated subpattern": "missing closing )",
    "unterminated character set": "missing closing ]",
    "nothing to repeat": "missing argument to repetition operator",
    "unbalanced parenthesis": "unexpected )",
}


def _validate(text: str) -> int:
    import re

    try:
        re.compile(text)
    except re.error as reason:
        words = next((theirs for ours, theirs in _RE2_WORDS.items() if ours in str(reason)), str(reason))
        print(f"The regular expression `{text}` is invalid: {words}.")
        return 0
    print(f"The regular expression `{text}` is valid.")
    return 0


def states_of(text: str) -> list[str]:
    words = [word.strip().lower() for word in text.split(",")]
    if any(word not in STATES for word in words):
        raise ValueError(f"Invalid state list '{text}'. Valid states are: {', '.join(STATES.values())}")
    return [STATES[word] for word in words]


def _list(cluster: Cluster, options: Options) -> None:
    if not options.has("type") and not options.has("state"):
        for group in consumer_groups(cluster):
            print(group.group_id)
        return
    states = states_of(options.value("state") or "") if options.value("state") else []
    types = [word.strip() for word in (options.value("type") or "").lower().split(",") if word.strip()]
    if any(word not in {"consumer", "classic"} for word in types):
        raise ValueError(f"Invalid types list '{options.value('type')}'. Valid types are: Consumer, Classic")
    groups = consumer_groups(cluster, states, types)
    width = max((max(15, len(group.group_id)) for group in groups), default=15) + 10
    shown = [name for name in ("type", "state") if options.has(name)]
    print(f"{'GROUP':<{width}}" + "".join(f" {name.upper():<20}" for name in shown))
    for group in groups:
        cells = {"type": group.group_type.capitalize() or "Unknown", "state": group.group_state}
        print(f"{group.group_id:<{width}}" + "".join(f" {cells[name]:<20}" for name in shown))


def _delete(cluster: Cluster, groups: list[str]) -> None:
    failed: dict[str, KafkaError] = {}
    for group in groups:
        try:
            delete_group(cluster, group)
        except KafkaError as reason:
            failed[group] = reason
    deleted = [group for group in groups if group not in failed]
    if not failed:
        print(f"Deletion of requested consumer groups ('{', '.join(deleted)}') was successful.")
        return
    print_error("Deletion of some consumer groups failed:")
    for group, error in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {java_name(error)}: {error}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: '{chr(39).join(deleted)}', '")


def topic_partitions(cluster: Cluster, topics: list[str]) -> list[tuple[str, int]]:
    """`topic` as all of its partitions, `topic:0,2` as those two."""
    places: list[tuple[str, int]] = []
    check_named(*topics)
    whole = [topic for topic in topics if ":" not in topic]
    for topic in topics:
        if ":" not in topic:
            continue
        name, _, listed = topic.partition(":")
        if ":" in listed or not listed:
            raise ValueError(f"Invalid topic arg '{topic}', expected topic name and partitions")
        for word in listed.split(","):
            if not word.isdigit():
                raise ValueError(f"Invalid partition '{word}' specified in topic arg '{topic}''")
            places.append((name, int(word)))
    for described in describe_topics(cluster, whole):
        places += [(described.name, row.partition) for row in described.partitions]
    return places


def _delete_offsets(cluster: Cluster, options: Options) -> None:
    group, topics = options.required("group"), options.values("topic")
    rows: dict[tuple[str, int], KafkaError | None] = {}
    partitions: list[tuple[str, int]] = []
    for topic in topics:
        try:
            partitions += topic_partitions(cluster, [topic])
        except KafkaError as reason:
            rows[topic, -1] = reason
    top: KafkaError | None = None
    try:
        rows |= delete_offsets(cluster, group, partitions)
        top = next((error for where, error in rows.items() if error is not None and where[1] >= 0), None)
    except KafkaError as reason:
        top = reason
        rows |= dict.fromkeys(partitions, reason)
    print(f"Request succeeded for deleting offsets from group {group}." if top is None else f"\nError: {top}")
    widths = max(15, *(len(topic) for topic, _ in rows)), 10
    print(f"\n{'TOPIC':<{widths[0]}} {'PARTITION':<{widths[1]}} {'STATUS':<15}", end="")
    for (topic, partition), error in sorted(rows.items()):
        shown = str(partition) if partition >= 0 else "-"
        status = f"Error: {java_name(error)}: {error}" if error is not None else "Successful"
        print(f"\n{topic:<{widths[0]}} {shown:<{widths[1]}} {status:<15}", end="")
    print("\n")
