"""kafka-groups: groups of every type."""

from __future__ import annotations

import sys

from ottla.cli.kafka.admin import BOOTSTRAP_SERVER, COMMAND_CONFIG, REFUSED, UnreadableFile, cluster_of
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.errors import CallTimeout, ClientError
from ottla.client.groups import list_groups
from ottla.model.errors import KafkaError

PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("list", text="List the groups."),
    Option("group-type", "String: type", "Only groups of this type."),
    Option("protocol", "String: protocol", "Only groups with this protocol type."),
    Option("consumer", text="Only groups that consumers use, of any type."),
    Option("share", text="Only share groups."),
    Option("streams", text="Only streams groups."),
))  # fmt: skip
_TYPES = ("classic", "consumer", "share", "streams")


def main(arguments: list[str]) -> int:
    try:
        try:
            options = PARSER.parse(arguments)
        except OptionError as reason:
            PARSER.usage(str(reason))
        if options.has("help") or options.has("version"):
            PARSER.begin(arguments, "This tool helps to list groups of all types.")
        if not options.has("bootstrap-server"):
            options.usage("Missing required option(s) [bootstrap-server]")
        if not options.has("list"):
            options.usage("Command must include exactly one action: --list.")
        for first, excluded in (
            ("consumer", ("protocol", "group-type", "share", "streams")),
            ("share", ("protocol", "group-type", "streams")),
            ("streams", ("protocol", "group-type")),
        ):
            options.refuse(first, excluded)
        _list(options)
    except Exit as end:
        return end.code
    except UnreadableFile as reason:
        print(reason, file=sys.stderr)
        return 1
    except (KafkaError, ClientError) as reason:
        words = "Failed to find brokers to send ListGroups" if isinstance(reason, CallTimeout) else str(reason)
        print(f"Error while executing groups command : {words}")
        return 1
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _list(options: Options) -> None:
    kind = (options.value("group-type") or "").lower()
    if kind and kind not in _TYPES:
        raise ValueError("--group-type must be a valid group type.")
    for name in ("share", "streams"):
        kind = name if options.has(name) else kind
    protocol = options.value("protocol")
    with cluster_of(options) as cluster:
        groups = list_groups(cluster, types=[kind] if kind else [])
    if protocol is not None:
        groups = [group for group in groups if group.protocol_type == protocol]
    if options.has("consumer"):
        groups = [
            group
            for group in groups
            if group.group_type.lower() == "consumer"
            or (group.group_type.lower() == "classic" and group.protocol_type in {"consumer", ""})
        ]
    width = max([20, *(len(group.group_id) for group in groups)])
    print(f"{'GROUP':<{width}} {'TYPE':<{width}} {'PROTOCOL':<{width}}")
    for group in groups:
        print(f"{group.group_id:<{width}} {group.group_type.capitalize():<{width}} {group.protocol_type:<{width}} ")
