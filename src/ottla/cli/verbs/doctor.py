"""`ottla doctor`: what is wrong with a connection or a cluster, and what to do about it. Exit code 1
reports a problem.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ottla.cli.options.combinations import is_set
from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.doctor.findings import Finding
    from ottla.cli.options.connecting import Target
    from ottla.client.cluster import Cluster

MAX_TOPICS = 1_000
"""Topics that --security looks at."""
_MARKS = {"error": ("x", "red"), "warning": ("!", "yellow"), "ok": ("ok", "green")}


@click.command()
@click.option(
    "--lag",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Report groups whose lag is at least this number of records.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 120),
    default=5.0,
    show_default=True,
    help="Seconds that each check may last.",
)
@click.option(
    "--security",
    is_flag=True,
    help="Report what is open to attack and how to close it, instead of checking the cluster.",
)
@click.option("--config", "config_file", type=click.Path(exists=True, dir_okay=False),
              help="With --security: check this server.properties and the files that it names, instead of a running cluster.")  # fmt: skip
@click.option("--http", "urls", multiple=True, metavar="URL",
              help="With --security: URL of a registry, console or other HTTP server to request without a login.")  # fmt: skip
@connected
def doctor(
    target: Target, *, lag: int, timeout: float, security: bool, config_file: str | None, urls: tuple[str, ...]
) -> None:
    r"""Check the connection to a cluster, then the cluster itself; with --security, report what is open to attack.

    \b
    Examples:
      ottla doctor
      ottla doctor -b broker:9093 -X security.protocol=SSL
      ottla doctor --profile prod -o json
      ottla doctor --security --config /etc/ottla/server.properties
      ottla doctor --security -b broker:9092 --http http://broker:8081/subjects
    """
    from ottla.cli.terminal.output import show_tree

    if not security and (config_file or urls):
        raise click.UsageError("--config and --http have no effect without --security")
    findings = examine_security(target, config_file, urls, timeout) if security else examine(target, lag, timeout)
    if target.output == "table":
        for finding in findings:
            _print(finding)
    else:
        show_tree([finding._asdict() for finding in findings], target.output)
    if any(finding.level == "error" for finding in findings):
        sys.exit(1)


def examine(target: Target, lag: int, timeout: float) -> list[Finding]:
    from ottla.cli.doctor.cluster import check_cluster
    from ottla.cli.doctor.connection import Reached, check_connection

    reached = Reached()
    findings = list(check_connection(target.profile, reached, timeout))
    if reached.metadata is not None:
        with target.cluster() as cluster:
            findings += check_cluster(cluster, lag)
    return findings


def examine_security(target: Target, config_file: str | None, urls: tuple[str, ...], timeout: float) -> list[Finding]:
    from ottla.cli.doctor.security import check_http, check_settings, check_topics

    findings: list[Finding] = []
    if config_file is not None:
        from ottla.cli.doctor.files import check_files
        from ottla.env.config.properties import parse_properties

        with open(config_file, encoding="utf-8", errors="replace") as file:
            values = parse_properties(file.read())
        findings += [*check_settings(values, config_file), *check_files(config_file, values)]
    elif not urls or is_set("bootstrap") or is_set("profile"):
        from ottla.client.configs import ConfigResourceType, describe_configs

        with target.cluster() as cluster:
            for broker in cluster.describe("describeCluster").brokers:
                node = str(broker.node_id)
                rows = describe_configs(cluster, ConfigResourceType.BROKER, [node]).get(node, [])
                values = {row.name: row.value or "" for row in rows}
                findings += check_settings(values, f"broker {node}")
            findings += check_topics(_topic_settings(cluster))
    findings += [check_http(url, timeout) for url in urls]
    return findings


def _topic_settings(cluster: Cluster) -> dict[str, dict[str, str]]:
    """The settings that the first topics have of their own."""
    from ottla.client.configs import ConfigResourceType, describe_configs

    names = [topic.name for topic in cluster.describe("describeTopics", None).topics if topic.name][:MAX_TOPICS]
    settings_by_topic: dict[str, dict[str, str]] = {}
    for first in range(0, len(names), 100):
        rows = describe_configs(cluster, ConfigResourceType.TOPIC, names[first : first + 100])
        settings_by_topic |= {name: {row.name: row.value or "" for row in settings} for name, settings in rows.items()}
    return settings_by_topic


def _print(finding: Finding) -> None:
    from ottla.cli.terminal.output import styled

    mark, colour = _MARKS[finding.level]
    click.echo(f"{styled(f'{mark:>2}', fg=colour, bold=True)} {finding.name}: {finding.seen}")
    if finding.fix:
        click.echo(f"   fix: {finding.fix}")
