"""The options that every verb has: which cluster, which profile, and how to print; and one line for what goes wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ottla.cli.profiles import Profile
    from ottla.client.cluster import Cluster

Command = TypeVar("Command", bound=Callable[..., Any])
TIMEOUT_MS = "15000"
"""A person waits less long than Kafka's own tools do."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a verb works and how it prints."""

    profile: Profile
    output: str

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        from ottla.client.cluster import Cluster
        from ottla.client.settings import client_settings

        properties = {"default.api.timeout.ms": TIMEOUT_MS, "request.timeout.ms": TIMEOUT_MS, **self.profile.properties}
        with Cluster(client_settings(self.profile.bootstrap, properties, client_id="ottla")) as connected:
            yield connected

    def librdkafka(self, *, producer: bool, **more: object) -> dict[str, object]:
        from ottla.cli.kafka.client_properties import librdkafka_config

        given = {"client.id": "ottla", **self.profile.properties, "bootstrap.servers": self.profile.bootstrap}
        return {**librdkafka_config(given, producer=producer), **more}


def located(command: Command) -> Command:
    """Adds -b, --profile, -X and --command-config; the command is called with the resolved `Profile` first."""

    @_where
    @functools.wraps(command)
    def wrapped(
        bootstrap: str | None,
        profile: str | None,
        properties: tuple[str, ...],
        command_config: str | None,
        **arguments: Any,
    ) -> Any:
        from ottla.cli.profiles import resolve

        with one_line_errors():
            found = resolve(bootstrap, profile, None, properties, command_config)
        return command(found, **arguments)

    return wrapped  # type: ignore[return-value]  # click's decorators change the signature


def connected(command: Command) -> Command:
    """Adds what `located` adds, --registry and -o; the command is called with `target` first."""

    @click.option("--registry", metavar="URL", help="The schema registry.  [env: OTTLA_REGISTRY]")
    @click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="How to print.")
    @functools.wraps(command)
    def wrapped(where: Profile, /, registry: str | None, output: str, **arguments: Any) -> Any:
        with one_line_errors():
            return command(Target(replace(where, registry=registry or where.registry), output), **arguments)

    return located(wrapped)  # type: ignore[return-value]  # click's decorators change the signature


def _where(command: Command) -> Command:
    for option in (
        click.option("--command-config", metavar="FILE", help="A file with client properties."),
        click.option(
            "-X", "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A client property; repeatable."
        ),
        click.option("--profile", help="A named profile (ottla profile list).  [env: OTTLA_PROFILE]"),
        click.option(
            "-b", "--bootstrap-servers", "bootstrap", help="Brokers, as HOST:PORT,...  [env: OTTLA_BOOTSTRAP_SERVERS]"
        ),
    ):
        command = option(command)
    return command


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What can be expected to fail is said in one line, exit code 1."""
    from ottla.client.errors import ClientError
    from ottla.console.errors import ConsoleError
    from ottla.model.errors import KafkaError

    try:
        yield
    except KafkaError as reason:
        raise click.ClickException(f"{reason} ({reason.code.name})") from reason
    except (ClientError, ConsoleError, ValueError, OSError) as reason:
        raise click.ClickException(str(reason) or type(reason).__name__) from reason
    except Exception as reason:  # librdkafka's own exception, which is only imported where records are moved
        if type(reason).__name__ != "KafkaException":
            raise
        raise click.ClickException(reason.args[0].str()) from reason
