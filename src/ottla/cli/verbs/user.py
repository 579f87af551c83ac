"""`ottla user`: SCRAM users."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target
    from ottla.cli.options.profiles import Profile
    from ottla.client.cluster import Cluster

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


_LOGIN_S = 5.0
"""A broker learns of a new credential a moment after the controller."""
_PAUSE_S = 0.1


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
@click.option(
    "--mechanism",
    type=click.Choice(MECHANISMS),
    help="SCRAM mechanism of the credential.  [default: the strongest that the brokers accept]",
)
@click.option(
    "--iterations", type=click.IntRange(4096, 16384), default=8192, show_default=True, help="Rounds of the SCRAM hash."
)
@click.password_option(help="Password; without this option the command asks for it.")
@connected
def add(target: Target, name: str, mechanism: str | None, iterations: int, password: str) -> None:
    """Create a user, or change the password of a user, and check that the user can log in."""
    from ottla.cli.kafka.configs_quotas import alter_scram
    from ottla.cli.options.reachability import logs_in
    from ottla.cli.terminal.output import report

    with target.cluster() as cluster:
        accepted = _accepted_mechanisms(cluster)
        chosen = mechanism or max((word for word in MECHANISMS if word in accepted), default=MECHANISMS[-1])
        alter_scram(cluster, name, {chosen: f"iterations={iterations},password={password}"}, ())
    tried = False
    if accepted and chosen not in accepted:
        words = (
            f"stored {chosen} for {name}; the brokers accept {', '.join(sorted(accepted))} only, so {name} cannot log in "
            f"yet: add {chosen} to sasl.enabled.mechanisms of a listener"
        )
        click.echo(words, err=True)
        if target.output == "table":
            return
    elif logs_in(target.profile):
        if _accepts_password(target.profile, name, chosen, password):
            words, tried = f"{name} can log in with {chosen}", True
        else:
            words = f"stored {chosen} for {name} (not tried: this listener does not offer {chosen})"
    else:
        words = f"stored {chosen} for {name} (not tried: this connection has no login)"
    report(words, target.output, {"user": name, "mechanism": chosen, "tried": tried})


def _accepted_mechanisms(cluster: Cluster) -> set[str]:
    """The mechanisms of all listeners; empty if the broker does not show its settings."""
    from ottla.client.configs import ConfigResourceType, describe_configs
    from ottla.model.errors import KafkaError

    broker = str(cluster.describe("metadata", []).brokers[0].node_id)
    try:
        configs = describe_configs(cluster, ConfigResourceType.BROKER, [broker])[broker]
    except KafkaError:
        return set()
    values = [row.value or "" for row in configs if row.name.endswith("sasl.enabled.mechanisms")]
    accepted = {word.strip() for value in values for word in value.split(",") if word.strip()}
    return set() if accepted == {"GSSAPI"} else accepted  # the default of a broker that has no logins


def _accepts_password(where: Profile, name: str, mechanism: str, password: str) -> bool:
    """Whether the login works; False if the listener does not offer the mechanism.

    Raises AuthenticationFailed if the brokers refuse the new password.
    """
    from ottla.cli.options.reachability import check_login
    from ottla.client.errors import AuthenticationFailed

    login = (
        f"org.apache.kafka.common.security.scram.ScramLoginModule required username={_quoted(name)} "
        f"password={_quoted(password)};"
    )
    own = replace(where, properties={**where.properties, "sasl.mechanism": mechanism, "sasl.jaas.config": login})
    deadline = time.monotonic() + _LOGIN_S
    while True:
        try:
            check_login(own)
        except AuthenticationFailed as refusal:
            if "not enabled in the server" in str(refusal.__cause__):
                return False
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return True


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@user.command()
@click.argument("name")
@click.option(
    "--mechanism",
    type=click.Choice(MECHANISMS),
    default="SCRAM-SHA-512",
    show_default=True,
    help="SCRAM mechanism of the credential.",
)
@connected
def remove(target: Target, name: str, mechanism: str) -> None:
    """Delete a credential of a user."""
    from ottla.cli.kafka.configs_quotas import alter_scram
    from ottla.cli.terminal.output import report

    with target.cluster() as cluster:
        alter_scram(cluster, name, {}, (mechanism,))
    report(f"{name} can no longer log in with {mechanism}", target.output, {"user": name, "removed": mechanism})
