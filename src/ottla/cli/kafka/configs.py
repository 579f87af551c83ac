"""kafka-configs: settings of topics, brokers, users, clients, ips, groups and client metrics."""

from __future__ import annotations

import re
import socket
import sys

from ottla.cli.kafka.admin import BOOTSTRAP_CONTROLLER, BOOTSTRAP_SERVER, COMMAND_CONFIG, UnreadableFile, cluster_of
from ottla.cli.kafka.configs_quotas import (
    alter_quotas,
    alter_scram,
    describe_quotas,
    describe_scram,
    is_quota,
    is_scram,
)
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
from ottla.client.errors import ClientError, java_name
from ottla.client.settings import load_properties
from ottla.client.topics import list_topics
from ottla.model.config_source import ConfigSource
from ottla.model.errors import KafkaError
from ottla.model.topic_names import check_topic_name
from ottla.protocol.generated.describe_configs_response import DescribeConfigsResourceResult

ENTITY_TYPES = ("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups", "broker-loggers")
FLAGS = {
    "topic": "topics", "client": "clients", "user": "users", "broker": "brokers", "broker-logger": "broker-loggers",
    "ip": "ips", "client-metrics": "client-metrics", "group": "groups",
}  # fmt: skip
DEFAULT_FLAGS = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
PARSER = OptionParser((
    BOOTSTRAP_SERVER._replace(text="Brokers, as HOST:PORT,..."),
    BOOTSTRAP_CONTROLLER,
    COMMAND_CONFIG,
    Option("alter", text="Change the entity's settings."),
    Option("describe", text="Show the entity's settings."),
    Option("all", text="With --describe: every setting, not only what was set on this entity."),
    Option("entity-type", "String", "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups."),
    Option("entity-name", "String", "The entity's name, such as a topic or a broker's id."),
    Option("entity-default", text="The default of clients, users, brokers or ips."),
    Option("add-config", "String", "Settings as k1=v1,k2=[v1,v2]; brackets keep commas in a value."),
    Option("add-config-file", "String", "A properties file with settings."),
    Option("delete-config", "String", "Names of settings to remove, as k1,k2."),
    *(Option(name, "String", f"The same as --entity-type {kind} --entity-name NAME.") for name, kind in FLAGS.items()),
    *(Option(name, text=f"The same as --entity-type {kind} --entity-default.") for name, kind in DEFAULT_FLAGS.items()),
))  # fmt: skip
_RESOURCES: dict[str, tuple[ConfigResourceType, ConfigSource | None]] = {
    "topics": (ConfigResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    "brokers": (ConfigResourceType.BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
    "broker-loggers": (ConfigResourceType.BROKER_LOGGER, None),
    "client-metrics": (ConfigResourceType.CLIENT_METRICS, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
    "groups": (ConfigResourceType.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
}
_ABOUT = "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics or group"
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, _ABOUT)
        _check(options)
        _run(options)
    except Exit as end:
        return end.code
    except (ValueError, OptionError) as reason:
        print(reason, file=sys.stderr)
        return 1
    except (ClientError, KafkaError, OSError) as reason:
        print(f"Error while executing config command with args '{' '.join(arguments)}'", file=sys.stderr)
        wrapped = "" if isinstance(reason, UnreadableFile) else "java.util.concurrent.ExecutionException: "
        print(f"{wrapped}{java_name(reason)}: {reason}", file=sys.stderr)
        return 1
    return 0


def entity_types(options: Options) -> list[str]:
    named = {**FLAGS, **DEFAULT_FLAGS}
    return options.values("entity-type") + [kind for name, kind in named.items() if options.has(name)]


def entity_names(options: Options) -> list[str]:
    entity_name_values = iter(options.values("entity-name"))
    spoken = [name for name in options.order if name in {"entity-name", "entity-default"}]
    names = [next(entity_name_values) if name == "entity-name" else "" for name in spoken]
    names += [options.value(name) or "" for name in FLAGS if options.has(name)]
    return names + ["" for name in DEFAULT_FLAGS if options.has(name)]


def _check(options: Options) -> None:
    if options.has("alter") == options.has("describe"):
        options.usage("Command must include exactly one action: --describe, --alter")
    connections = options.has("bootstrap-server") + options.has("bootstrap-controller")
    if connections == 0:
        raise ValueError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    if connections > 1:
        raise ValueError("Only one of --bootstrap-server or --bootstrap-controller can be specified.")
    options.refuse("describe", ("alter", "add-config", "delete-config"))
    kinds, names = entity_types(options), entity_names(options)
    twice = [kind for index, kind in enumerate(kinds) if kind in kinds[:index]]
    if twice:
        raise ValueError(f"Duplicate entity type(s) specified: {','.join(twice)}")
    for kind in kinds:
        if kind not in ENTITY_TYPES:
            raise ValueError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(ENTITY_TYPES)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not kinds:
        raise ValueError("At least one entity type must be specified")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise ValueError("Only 'users' and 'clients' entity types may be specified together")
    spoken = any(options.has(name) for name in ("entity-name", "entity-type", "entity-default"))
    if spoken and any(options.has(name) for name in (*FLAGS, *DEFAULT_FLAGS)):
        raise ValueError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    _check_names(kinds, [name for name in names if name])
    _check_action(options, kinds, names)


def _check_names(kinds: list[str], names: list[str]) -> None:
    if kinds[0] in {"brokers", "broker-loggers"}:
        for name in names:
            if not is_integer(name):
                raise ValueError(f"The entity name for {kinds[0]} must be a valid integer broker id, but it is: {name}")
    if kinds[0] == "ips":
        for name in names:
            try:
                socket.getaddrinfo(name, None)
            except OSError:
                raise ValueError(
                    f"The entity name for {kinds[0]} must be a valid IP or resolvable host, but it is: {name}"
                ) from None


def _check_action(options: Options, kinds: list[str], names: list[str]) -> None:
    may_default = bool({"users", "clients", "brokers", "ips"} & set(kinds))
    if options.has("describe"):
        if not may_default and options.has("entity-default"):
            raise ValueError(f"--entity-default must not be specified with --describe of {','.join(kinds)}")
        if "broker-loggers" in kinds and not any(names):
            raise ValueError(f"An entity name must be specified with --describe of {','.join(kinds)}")
        return
    if may_default and not names:
        raise ValueError(
            "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
        )
    if not may_default and not any(names):
        raise ValueError(f"An entity name must be specified with --alter of {','.join(kinds)}")
    if options.has("add-config") and options.has("add-config-file"):
        raise ValueError("Only one of --add-config or --add-config-file must be specified")
    if not any(options.has(name) for name in ("add-config", "add-config-file", "delete-config")):
        raise ValueError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


def _run(options: Options) -> None:
    kinds, names = entity_types(options), entity_names(options)
    with cluster_of(options) as cluster:
        if options.has("alter"):
            if len(kinds) != len(names):
                raise ValueError("An entity name must be specified for every entity type")
            _alter(cluster, kinds, names, _added(options), _deleted(options))
        elif kinds[0] in _RESOURCES:
            _describe(cluster, kinds[0], names[0] if names else None, everything=options.has("all"))
        else:
            describe_quotas(cluster, kinds, names)
            if "users" in kinds and "clients" not in kinds and "" not in names:
                describe_scram(cluster, names)


def _added(options: Options) -> dict[str, str]:
    added: dict[str, str] = {}
    if path := options.value("add-config-file"):
        added.update(load_properties(path))
    if (text := options.value("add-config")) is not None:
        for pair in re.split("," + _OUTSIDE_BRACKETS, text):
            words = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, pair)
            if len(words) != 2:
                raise ValueError(
                    'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" '
                    'or  "key=[val1,val2]" to group values which contain commas.'
                )
            added[words[0].strip()] = re.sub(r"\[?\]?", "", words[1]).strip()
    for name in added:
        if not re.fullmatch(r"[a-zA-Z0-9._-]*", name):
            raise ValueError(f"Invalid character found for config key: {name}")
    return added


def _deleted(options: Options) -> list[str]:
    return [name.strip() for text in options.values("delete-config") for name in text.split(",")]


def _alter(cluster: Cluster, kinds: list[str], names: list[str], added: dict[str, str], deleted: list[str]) -> None:
    kind, name = kinds[0], names[0]
    if kind in _RESOURCES:
        _alter_resource(cluster, kind, name, added, deleted)
    elif kind == "ips":
        unknown = [key for key in (*added, *deleted) if key != "connection_creation_rate"]
        if unknown:
            raise ValueError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
        alter_quotas(cluster, kinds, names, added, deleted)
    else:
        _alter_users(cluster, kinds, names, added, deleted)
    if name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


def _alter_resource(cluster: Cluster, kind: str, name: str, added: dict[str, str], deleted: list[str]) -> None:
    if kind == "broker-loggers":
        existing = {row.name for row in _rows(cluster, kind, name, everything=False)}
        strange = [key for key in (*deleted, *added) if key not in existing]
        if strange:
            raise ValueError(f"Invalid broker logger(s): {','.join(strange)}")
    changes: list[Change] = [(key, SET, value) for key, value in added.items()]
    changes += [(key, DELETE, "") for key in deleted]
    alter_configs(cluster, _RESOURCES[kind][0], name, changes)


def _alter_users(
    cluster: Cluster, kinds: list[str], names: list[str], added: dict[str, str], deleted: list[str]
) -> None:
    only_quotas = kinds[0] == "clients" or len(kinds) == 2
    what, whose = ("quota", "clients") if only_quotas else ("quota and SCRAM credential", "users")
    for verb, keys in (("added", list(added)), ("deleted", deleted)):
        strange = [key for key in keys if not is_quota(key) and (only_quotas or not is_scram(key))]
        if strange:
            shown = f"Set({', '.join(strange)})" if verb == "added" else f"ArrayBuffer({', '.join(strange)})"
            raise ValueError(
                f"Only {what} configs can be {verb} for '{whose}' using --bootstrap-server. "
                f"Unexpected config names: {shown}"
            )
    credentials = [key for key in (*added, *deleted) if is_scram(key)]
    quotas = [key for key in (*added, *deleted) if is_quota(key)]
    if credentials:
        if "" in names:
            raise ValueError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials "
                "using --bootstrap-server."
            )
        if quotas:
            raise ValueError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server."
            )
        alter_scram(cluster, names[0], added, deleted)
    else:
        alter_quotas(cluster, kinds, names, added, deleted)


def _describe(cluster: Cluster, kind: str, name: str | None, *, everything: bool) -> None:
    if kind == "topics" and name is not None:
        try:
            check_topic_name(name)
        except KafkaError as reason:
            raise ValueError(str(reason)) from None
    if name is not None and kind != "broker-loggers" and name not in _entities(cluster, kind):
        print(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    for entity in _entities(cluster, kind) if name is None else [name]:
        if entity == "":
            print(f"Default configs for {kind} in the cluster are:")
        else:
            print(f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {entity} are:")
        for row in _rows(cluster, kind, entity, everything=everything):
            synonyms = ", ".join(f"{ConfigSource(s.source).name}:{s.name}={_shown(s.value)}" for s in row.synonyms)
            sensitive = str(row.is_sensitive).lower()
            print(f"  {row.name}={_shown(row.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _entities(cluster: Cluster, kind: str) -> list[str]:
    if kind == "topics":
        return [topic.name or "" for topic in list_topics(cluster)]
    if kind in {"brokers", "broker-loggers"}:
        return [*(str(broker.node_id) for broker in cluster.describe("describeCluster").brokers), ""]
    if kind == "groups":
        from ottla.client.groups import list_groups

        named = list_config_resources(cluster, ConfigResourceType.GROUP)
        return list(dict.fromkeys([*(group.group_id for group in list_groups(cluster)), *named]))
    return list_config_resources(cluster, _RESOURCES[kind][0])


def _rows(cluster: Cluster, kind: str, name: str, *, everything: bool) -> list[DescribeConfigsResourceResult]:
    resource, source = _RESOURCES[kind]
    if kind == "brokers" and not name:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    rows = describe_configs(cluster, resource, [name], synonyms=True).get(name, [])
    chosen = rows if everything or source is None else [row for row in rows if row.config_source == source]
    return sorted(chosen, key=lambda row: row.name)
