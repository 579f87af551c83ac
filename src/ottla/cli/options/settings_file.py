"""`--settings FILE`: the options of a command from a file, so that a password is not on a command line that `ps` shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])
_GROUPS = {"property": "properties", "conf": "spark_settings"}
"""Options that are given many times: `property.NAME: VALUE` in the file."""


def settings_option(example: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--settings",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_settings_file,
        help=f"Options from a YAML, JSON or properties file: {example}",
    )


def _settings_file(context: click.Context, _: click.Parameter, path: str | None) -> None:
    """Options from a file; the command line's own win. Names are those of the options, without the dashes in front."""
    if path is None:
        return
    from ottla.connect.config import load_config
    from ottla.model.user_error import UserError

    try:
        settings = load_config(path)
    except UserError as problem:
        raise click.BadParameter(str(problem)) from problem
    option_names = {name.lstrip("-"): option.name for option in context.command.params for name in option.opts}
    defaults: dict[str, Any] = {}
    for name, value in settings.items():
        group, _dot, sub_name = name.partition(".")
        option = option_names.get(name.replace(".", "-").replace("_", "-"))
        if group in _GROUPS and sub_name:
            defaults.setdefault(_GROUPS[group], []).append(f"{sub_name}={value}")
        elif option is not None and option not in _GROUPS.values():
            defaults[option] = value
        else:
            raise click.BadParameter(
                f"{path}: {name!r} is not a setting; settings are {', '.join(sorted(option_names))}"
            )
    context.default_map = {**(context.default_map or {}), **defaults}
