"""`ottla config`: settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target

KINDS = ["topic", "broker", "group", "client-metrics"]


@click.group()
def config() -> None:
    r"""Show and change settings of topics, brokers, groups and client metrics.

    \b
    Examples:
      ottla config show topic orders
      ottla config set topic orders retention.ms=604800000
      ottla config unset broker 1 log.cleaner.threads
    """


@config.command("show")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--all", "everything", is_flag=True, help="Show settings that have their default too.")
@connected
def show_(target: Target, kind: str, name: str, everything: bool) -> None:  # noqa: FBT001 - click passes flags so
    """Show the settings of a topic, broker, group or client-metrics resource."""
    from ottla.cli.terminal.output import show
    from ottla.client.configs import ConfigResourceType, describe_configs
    from ottla.model.config_source import ConfigSource

    with target.cluster() as cluster:
        configs = describe_configs(cluster, ConfigResourceType[kind.upper().replace("-", "_")], [name], synonyms=True)
    rows = [
        {"name": row.name, "value": row.value, "from": ConfigSource(row.config_source).name.lower().replace("_", " ")}
        for row in sorted(configs.get(name, []), key=lambda row: row.name)
        if everything or row.config_source not in {ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG}
    ]
    show(rows, target.output)


@config.command("set")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@connected
def set_(target: Target, kind: str, name: str, settings: tuple[str, ...]) -> None:
    """Change settings; a broker's NAME may be `default` for all."""
    from ottla.client.configs import SET, Change

    changes: list[Change] = []
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.ClickException(f"{text}: a setting is NAME=VALUE")
        changes.append((key, SET, value))
    _alter(target, kind, name, changes)


@config.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="NAME...")
@connected
def unset(target: Target, kind: str, name: str, settings: tuple[str, ...]) -> None:
    """Remove settings, so that their defaults apply."""
    from ottla.client.configs import DELETE

    _alter(target, kind, name, [(key, DELETE, "") for key in settings])


def _alter(target: Target, kind: str, name: str, changes: list[tuple[str, int, str | None]]) -> None:
    from ottla.cli.terminal.output import report
    from ottla.client.configs import ConfigResourceType, alter_configs

    resource = "" if kind == "broker" and name == "default" else name
    with target.cluster() as cluster:
        alter_configs(cluster, ConfigResourceType[kind.upper().replace("-", "_")], resource, changes)
    report(
        f"changed {kind} {name}", target.output, {"kind": kind, "name": name, "changed": [row[0] for row in changes]}
    )
