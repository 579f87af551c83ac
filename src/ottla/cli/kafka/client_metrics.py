"""kafka-client-metrics: which metrics clients push, and how often."""

from __future__ import annotations

import os
import sys

from ottla.cli.kafka.admin import BOOTSTRAP_SERVER, COMMAND_CONFIG, REFUSED, UnreadableFile, cluster_of
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options, is_integer
from ottla.client.cluster import Cluster
from ottla.client.configs import (
    DELETE,
    SET,
    Change,
    ConfigResourceType,
    alter_configs,
    describe_configs,
    list_config_resources,
)
from ottla.client.errors import ClientError
from ottla.model.errors import KafkaError
from ottla.model.ids import new_uuid, uuid_to_str

PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("alter", text="Change a resource's settings."),
    Option("delete", text="Delete a resource."),
    Option("describe", text="Show resources."),
    Option("list", text="List the resources' names."),
    Option("name", "String: name", "The resource's name."),
    Option("generate-name", text="Generate a name."),
    Option("interval", "String: push interval", "Milliseconds between pushes; an empty value removes the setting."),
    Option("match", "String: k1=v1,k2=v2", "Clients that push metrics, as NAME=PATTERN; an empty value removes the setting."),
    Option("metrics", "String: m1,m2", "Prefixes of metric names; an empty value removes the setting."),
))  # fmt: skip
_SETTINGS = {"interval": "interval.ms", "metrics": "metrics", "match": "match"}


def main(arguments: list[str]) -> int:
    try:
        try:
            options = PARSER.begin(
                arguments, "This tool helps to manipulate and describe client metrics configurations."
            )
        except OptionError as reason:
            PARSER.usage(str(reason))
        if sum(options.has(name) for name in ("alter", "delete", "describe", "list")) != 1:
            options.usage("Command must include exactly one action: --alter, --delete, --describe or --list.")
        _check(options)
        with cluster_of(options) as cluster:
            _run(cluster, options)
    except Exit as end:
        return end.code
    except UnreadableFile as reason:
        print(reason, file=sys.stderr)
        return 1
    except (KafkaError, ClientError) as reason:
        print(f"Error while executing client metrics command : {reason}")
        return 1
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _check(options: Options) -> None:
    if not options.has("bootstrap-server"):
        raise ValueError("--bootstrap-server must be specified.")
    named = options.has("name") or options.has("generate-name")
    if options.has("alter"):
        if not named:
            raise ValueError("One of --name or --generate-name must be specified with --alter.")
        interval = options.value("interval")
        if interval and not is_integer(interval):
            raise ValueError("Invalid interval value. Enter an integer, or leave empty to reset.")
    if options.has("delete") and not options.has("name"):
        raise ValueError("A client metrics resource name must be specified with --delete.")


def _run(cluster: Cluster, options: Options) -> None:
    kind = ConfigResourceType.CLIENT_METRICS
    name = uuid_to_str(new_uuid(os.urandom)) if options.has("generate-name") else options.value("name")
    if options.has("list"):
        print("\n".join(list_config_resources(cluster, kind)))
    elif options.has("describe"):
        names = list_config_resources(cluster, kind)
        if name is not None and name not in names:
            print(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
            return
        for resource_name in names if name is None else [name]:
            print(f"Client metrics configs for {resource_name} are:")
            for row in sorted(
                describe_configs(cluster, kind, [resource_name]).get(resource_name, []), key=lambda row: row.name
            ):
                print(f"  {row.name}={row.value}")
    elif options.has("alter"):
        changes: list[Change] = []
        for option, setting in _SETTINGS.items():
            value = options.value(option)
            if value is not None:
                changes.append((setting, SET, value) if value else (setting, DELETE, ""))
        alter_configs(cluster, kind, name or "", changes)
        print(f"Altered client metrics config for {name}.")
    else:
        rows = describe_configs(cluster, kind, [name or ""]).get(name or "", [])
        alter_configs(cluster, kind, name or "", [(row.name, DELETE, "") for row in rows])
        print(f"Deleted client metrics config for {name}.")
