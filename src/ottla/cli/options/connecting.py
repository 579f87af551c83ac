"""The options that every verb has: which cluster, which profile, and how to print; and one line for what goes wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.options.client_options import property_option
from ottla.cli.options.output_format import output_option

if TYPE_CHECKING:
    from ottla.cli.options.profiles import Profile
    from ottla.client.cluster import Cluster

Command = TypeVar("Command", bound=Callable[..., Any])
TIMEOUT_MS = "15000"
"""A person waits less long than Kafka's own tools do."""
_UNANSWERED = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_MSG_TIMED_OUT", "_RESOLVE"}
"""librdkafka's error codes for an address where no broker answered."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a verb works and how it prints."""

    profile: Profile
    output: str

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        from ottla.cli.options.reachability import open_cluster

        with open_cluster(self.profile, TIMEOUT_MS) as connected:
            yield connected

    def librdkafka(
        self, *, producer: bool, defaults: Mapping[str, object] | None = None, **more: object
    ) -> dict[str, object]:
        """Settings for librdkafka: the profile's and -X replace `defaults`, and `more` replaces theirs."""
        from ottla.cli.kafka.client_properties import librdkafka_config
        from ottla.cli.options.reachability import check_login, wait_for_listener

        wait_for_listener(self.profile.bootstrap)
        check_login(self.profile)
        properties = {"client.id": "ottla", **self.profile.properties, "bootstrap.servers": self.profile.bootstrap}
        return {**(defaults or {}), **librdkafka_config(properties, producer=producer), **more}


registry_option = click.option("--registry", metavar="URL", help="URL of the schema registry.  [env: OTTLA_REGISTRY]")


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
        from ottla.cli.options.profiles import resolve

        with one_line_errors():
            resolved_profile = resolve(bootstrap, profile, None, properties, command_config)
        return command(resolved_profile, **arguments)

    return wrapped  # type: ignore[return-value]  # click's decorators change the signature


def connected(command: Command) -> Command:
    """Adds what `located` adds, --registry and -o; the command is called with `target` first."""

    @registry_option
    @output_option("table", "json", "yaml")
    @functools.wraps(command)
    def wrapped(where: Profile, /, registry: str | None, output: str, **arguments: Any) -> Any:
        with one_line_errors(where, _what(arguments)):
            return command(Target(replace(where, registry=registry or where.registry), output), **arguments)

    return located(wrapped)  # type: ignore[return-value]  # click's decorators change the signature


def _what(arguments: dict[str, Any]) -> str:
    """The topic, group or id that a verb was called with."""
    subject = next(
        (arguments[name] for name in ("name", "topic", "names", "transactional_id") if arguments.get(name)), ""
    )
    return subject if isinstance(subject, str) else ", ".join(subject)


def _where(command: Command) -> Command:
    for option in (
        click.option("--command-config", metavar="FILE", help="Properties file with Kafka client settings."),
        property_option(),
        click.option("--profile", help="A named profile (ottla profile list).  [env: OTTLA_PROFILE]"),
        click.option(
            "-b",
            "--bootstrap-servers",
            "bootstrap",
            help="Brokers, as HOST:PORT,...  [env: OTTLA_BOOTSTRAP_SERVERS; default: 127.0.0.1:9092]",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def one_line_errors(where: Profile | None = None, what: str = "") -> Iterator[None]:
    """Reports an expected error in one line that names `what`; the exit code is 1.

    If librdkafka got no answer, the line is what the doctor finds on the way to `where`.
    """
    from ottla.model.errors import KafkaError
    from ottla.model.user_error import UserError

    try:
        yield
    except KafkaError as reason:
        words = str(reason) if what in str(reason) else f"{what}: {reason}"
        raise click.ClickException(f"{words} ({reason.code.name})") from reason
    except BrokenPipeError:  # `| head` has seen enough: click ends without a word
        raise
    except (UserError, ValueError, OSError) as reason:
        raise click.ClickException(str(reason) or type(reason).__name__) from reason
    except Exception as reason:  # librdkafka's own exception, which is only imported where records are moved
        if type(reason).__name__ != "KafkaException":
            raise
        raise click.ClickException(librdkafka_words(reason.args[0], where)) from reason


def librdkafka_words(reason: Any, where: Profile | None) -> str:
    words = str(reason.str())
    if where is None or reason.name() not in _UNANSWERED:
        return words
    from ottla.cli.options.reachability import diagnosed

    return diagnosed(where, words)
