"""How every command names its brokers and the properties of its Kafka client: `-b/--bootstrap-servers` and `-X/--property`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])
SERVERS_VARIABLE = "OTTLA_BOOTSTRAP_SERVERS"
SERVERS = "127.0.0.1:9092"


def servers_option(
    default: str | None = SERVERS, text: str = "Brokers, as HOST:PORT,..."
) -> Callable[[_Command], _Command]:
    """Without a default the command has no brokers unless the option names some; the variable is not read then."""
    names = ("-b", "--bootstrap-servers")
    if default is None:
        return click.option(*names, help=text)
    return click.option(
        *names, envvar=SERVERS_VARIABLE, show_envvar=True, default=default, show_default=True, help=text
    )


def property_option(
    text: str = "Kafka client property, such as security.protocol=SSL; may be repeated.",
) -> Callable[[_Command], _Command]:
    return click.option("-X", "--property", "properties", multiple=True, metavar="NAME=VALUE", help=text)


def pairs(option: str, pair_texts: Sequence[str]) -> dict[str, str]:
    named = {}
    for pair_text in pair_texts:
        name, separator, value = pair_text.partition("=")
        if not separator:
            raise click.UsageError(f"{option} {pair_text!r} is not NAME=VALUE")
        named[name.strip()] = value.strip()
    return named
