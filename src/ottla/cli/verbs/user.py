"""`ottla user`: SCRAM users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


_mechanism = click.option(
    "--mechanism",
    type=click.Choice(MECHANISMS),
    default="SCRAM-SHA-512",
    show_default=True,
    help="SCRAM mechanism of the credential.",
)


@click.group()
def user() -> None:
    r"""Users that log in with a password (SCRAM).

    \b
    Examples:
      ottla user add alice
      ottla user list
    """


@user.command("list")
@connected
def list_(target: Target) -> None:
    """List all users with credentials."""
    from ottla.cli.terminal.output import show
    from ottla.client.errors import check
    from ottla.protocol.generated.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
    from ottla.protocol.generated.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse

    with target.cluster() as cluster:
        request = DescribeUserScramCredentialsRequest(None)
        answer = cluster.any_call("describeUserScramCredentials", request, DescribeUserScramCredentialsResponse)
        check(answer.error_code, answer.error_message)
    rows = [
        {"user": row.user, "mechanism": MECHANISMS[info.mechanism - 1], "iterations": info.iterations}
        for row in answer.results
        for info in row.credential_infos
    ]
    show(rows, target.output)


@user.command()
@click.argument("name")
@_mechanism
@click.option(
    "--iterations", type=click.IntRange(4096, 16384), default=8192, show_default=True, help="Rounds of the SCRAM hash."
)
@click.password_option(help="Password; without this option the command asks for it.")
@connected
def add(target: Target, name: str, mechanism: str, iterations: int, password: str) -> None:
    """Create a user, or change the password of a user."""
    from ottla.cli.kafka.configs_quotas import alter_scram

    with target.cluster() as cluster:
        alter_scram(cluster, name, {mechanism: f"iterations={iterations},password={password}"}, ())
    click.echo(f"{name} can log in with {mechanism}")


@user.command()
@click.argument("name")
@_mechanism
@connected
def remove(target: Target, name: str, mechanism: str) -> None:
    """Delete a credential of a user."""
    from ottla.cli.kafka.configs_quotas import alter_scram

    with target.cluster() as cluster:
        alter_scram(cluster, name, {}, (mechanism,))
    click.echo(f"{name} can no longer log in with {mechanism}")
