"""`ottla topic`: list, describe, create, alter and delete topics, with advice where there is a choice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ottla.cli.options.completions import topic_names
from ottla.cli.options.connecting import connected
from ottla.cli.verbs.forget import forget
from ottla.model.marker_groups import MARKER_TOPIC

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target

NAME_RULE = re.compile(
    r"[a-z][a-z0-9-]*\.[a-z][a-z0-9_-]*\.[a-z][a-z0-9_-]*\.(avro|json|protobuf|parquet|csv|text|binary)"
)


def advised_partitions(brokers: int) -> int:
    """3 for each broker of a small cluster (< 6), 2 for each broker of a large cluster (> 12), at least 15 in between."""
    if brokers < 6:
        return 3 * brokers
    return 2 * brokers if brokers > 12 else max(15, 2 * brokers)


def advised_replication(brokers: int) -> int:
    """3, or as many as there are brokers."""
    return min(3, brokers)


@click.group()
def topic() -> None:
    r"""List, describe, create, alter and delete topics.

    \b
    Examples:
      ottla topic list
      ottla topic create user.shop.orders.avro --config retention.ms=604800000
      ottla topic describe orders -o json
    """


@topic.command("list")
@click.option("--internal", is_flag=True, help="List internal topics too.")
@connected
def list_(target: Target, internal: bool) -> None:  # noqa: FBT001 - click passes flags so
    """List all topics, with partitions and replicas."""
    from ottla.cli.terminal.output import show
    from ottla.client.topics import list_topics

    with target.cluster() as cluster:
        rows = [
            {
                "topic": topic.name,
                "partitions": len(topic.partitions),
                "replicas": max((len(row.replica_nodes) for row in topic.partitions), default=0),
                "under-replicated": sum(len(row.isr_nodes) < len(row.replica_nodes) for row in topic.partitions),
            }
            for topic in list_topics(cluster)
            if internal or not (topic.is_internal or topic.name == MARKER_TOPIC)
        ]
    show(rows, target.output, ("topic", "partitions", "replicas", "under-replicated"))


@topic.command()
@click.argument("name", shell_complete=topic_names)
@connected
def describe(target: Target, name: str) -> None:
    """Show the partitions of a topic, their sizes, and the settings that differ from the defaults."""
    from ottla.cli.terminal.output import show, show_tree
    from ottla.client.configs import ConfigResourceType, describe_configs
    from ottla.client.offsets import end_offsets
    from ottla.client.topics import describe_topics
    from ottla.model.config_source import ConfigSource
    from ottla.model.ids import uuid_to_str

    with target.cluster() as cluster:
        described_topic = describe_topics(cluster, [name])[0]
        places = [(name, row.partition) for row in described_topic.partitions if row.leader is not None]
        first, last = end_offsets(cluster, places, earliest=True), end_offsets(cluster, places)
        settings = describe_configs(cluster, ConfigResourceType.TOPIC, [name])[name]
    own = {row.name: row.value for row in settings if row.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG}
    rows = [
        {
            "partition": row.partition,
            "leader": row.leader,
            "replicas": list(row.replicas),
            "isr": list(row.isr),
            "first": first.get((name, row.partition)),
            "end": last.get((name, row.partition)),
        }
        for row in described_topic.partitions
    ]
    if target.output != "table":
        show_tree(
            {"topic": name, "id": uuid_to_str(described_topic.topic_id), "configs": own, "partitions": rows},
            target.output,
        )
        return
    click.echo(f"{name}  id {uuid_to_str(described_topic.topic_id)}")
    for key, value in sorted(own.items()):
        click.echo(f"  {key}={value}")
    show(rows, "table")


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1, 100_000),
    help="Number of partitions (default: advised from the number of brokers).",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 100),
    help="Number of replicas (default: 3, or the number of brokers if there are fewer).",
)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="Setting of the topic; may be repeated.")
@click.option("--check-name", is_flag=True, help="Refuse names that are not TYPE.DATASET.NAME.FORMAT.")
@connected
def create(
    target: Target,
    name: str,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    check_name: bool,  # noqa: FBT001 - click passes flags so
) -> None:
    r"""Create a topic.

    \b
    Recommended names (checked with --check-name, or by the profile's rule):
      <message type>.<dataset>.<data name>.<format>, such as user.shop.orders.avro
    """
    from ottla.cli.terminal.output import report
    from ottla.client.topics import create_topic
    from ottla.model.topic_names import has_collision_chars

    if (check_name or target.profile.name_rule) and not NAME_RULE.fullmatch(name):
        raise click.ClickException(
            f"{name!r} is not <message type>.<dataset>.<data name>.<format>, such as user.shop.orders.avro; "
            "formats: avro, json, protobuf, parquet, csv, text, binary"
        )
    pairs = dict(_pair(text) for text in configs)
    with target.cluster() as cluster:
        brokers = len(cluster.describe("describeCluster").brokers)
        chosen = partitions or advised_partitions(brokers)
        copies = replicas or advised_replication(brokers)
        create_topic(cluster, name, partitions=chosen, replication_factor=copies, configs=pairs)
    why = "" if partitions and replicas else f"  (advised for {brokers} broker{'s' if brokers > 1 else ''})"
    report(
        f"created {name}: {chosen} partitions, {copies} replica{'s' if copies > 1 else ''}{why}",
        target.output,
        {"topic": name, "partitions": chosen, "replicas": copies},
    )
    if brokers < 3:
        click.echo("note: with fewer than 3 brokers the loss of one disk can lose records", err=True)
    if has_collision_chars(name) and "." in name and "_" in name:
        click.echo("note: topic names that differ only in '.' and '_' share one metric name", err=True)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.ClickException(f"--config {text}: a setting is NAME=VALUE")
    return key.strip(), value.strip()


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option(
    "--partitions",
    type=click.IntRange(1, 100_000),
    help="New number of partitions; new records of a key may go to a different partition.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the topic; an empty value removes the setting.",
)
@connected
def alter(target: Target, name: str, partitions: int | None, configs: tuple[str, ...]) -> None:
    """Add partitions, or change settings of a topic."""
    from ottla.cli.terminal.output import report
    from ottla.client.configs import DELETE, SET, Change, ConfigResourceType, alter_configs
    from ottla.client.topics import create_partitions

    if partitions is None and not configs:
        raise click.ClickException("nothing to change: give --partitions or --config")
    with target.cluster() as cluster:
        if configs:
            pairs = [_pair(text) for text in configs]
            changes: list[Change] = [(key, SET if value else DELETE, value) for key, value in pairs]
            alter_configs(cluster, ConfigResourceType.TOPIC, name, changes)
        if partitions is not None:
            create_partitions(cluster, name, partitions, None)
    report(f"changed {name}", target.output, {"topic": name, "partitions": partitions, "configs": list(configs)})


@topic.command()
@click.argument("names", shell_complete=topic_names, nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connected
def delete(target: Target, names: tuple[str, ...], yes: bool) -> None:  # noqa: FBT001 - click passes flags so
    """Delete topics and their records."""
    from ottla.cli.terminal.output import show_tree
    from ottla.client.topics import delete_topic

    if not yes:
        click.confirm(f"delete {', '.join(names)} and all records?", abort=True, err=True)
    with target.cluster() as cluster:
        for name in names:
            delete_topic(cluster, name)
            if target.output == "table":
                click.echo(f"deleted {name}")
    if target.output != "table":
        show_tree({"deleted": list(names)}, target.output)


topic.add_command(forget)
