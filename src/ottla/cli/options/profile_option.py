"""`--profile` of the verbs that keep running: the console, the registry, connectors and pipelines.

These verbs have options of their own for brokers and properties. A profile fills in what no option, variable or settings
file sets. A companion of `ottla up` gets its brokers from `ottla up`, and follows no profile.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ottla.cli.options.combinations import is_set
from ottla.cli.options.connecting import one_line_errors
from ottla.cli.options.profiles import Profile, load_profiles, resolve

_Command = TypeVar("_Command", bound=Callable[..., Any])

profile_option = click.option("--profile", help="A named profile (ottla profile list).  [env: OTTLA_PROFILE]")


def chosen_name(profile: str | None) -> str:
    """The name of the profile that a verb follows; empty without a profile."""
    return profile or os.environ.get("OTTLA_PROFILE") or load_profiles().current


def chosen_profile(profile: str | None, bootstrap_servers: str | None) -> Profile:
    """The profile that the running verb follows, with the brokers of the verb's own option where that is set.

    Raises click.ClickException for a profile that does not exist.
    """
    with one_line_errors():
        return resolve(bootstrap_servers if is_set("bootstrap_servers") else None, profile, None, (), None)


def profiled(command: _Command) -> _Command:
    """Adds --profile to a command with `bootstrap_servers` and `properties`, and fills in both from the profile.

    A command without a default for its brokers gets those of a profile only if --profile names the profile.
    """

    @profile_option
    @functools.wraps(command)
    def wrapped(*words: Any, profile: str | None, **options: Any) -> Any:
        if options["bootstrap_servers"] is not None or profile is not None:
            where = chosen_profile(profile, options["bootstrap_servers"])
            own = tuple(f"{name}={value}" for name, value in where.properties.items())
            options |= {"bootstrap_servers": where.bootstrap, "properties": (*own, *options["properties"])}
        return command(*words, **options)

    return wrapped  # type: ignore[return-value]  # click's decorators change the signature


def words_again(profile: str | None, bootstrap_servers: str) -> list[str]:
    """The words by which a process of its own finds the same cluster. No secret of a profile is on a command line."""
    name = chosen_name(profile)
    words = ["--profile", name] if name else []
    return [*words, "--bootstrap-servers", bootstrap_servers] if is_set("bootstrap_servers") or not name else words
