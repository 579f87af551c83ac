"""Options that do not go together, and names that are empty, are refused by name. No verb ignores an option that a person
has given.
"""

from __future__ import annotations

import click
from click.core import ParameterSource


def is_set(parameter: str) -> bool:
    """Whether the parameter of the running command was given, rather than left at its default."""
    return click.get_current_context().get_parameter_source(parameter) not in {None, ParameterSource.DEFAULT}


def refuse_together(first: str, first_value: object, second: str, second_value: object, reason: str = "") -> None:
    """UsageError if both options have a value; None, False and an empty tuple are no value."""
    if _present(first_value) and _present(second_value):
        raise click.UsageError(f"{first} and {second} cannot be used together" + (f": {reason}" if reason else ""))


def refuse_without(option: str, value: object, needed: str, needed_value: object) -> None:
    """UsageError if the option has a value and the option that it belongs to has none."""
    if _present(value) and not _present(needed_value):
        raise click.UsageError(f"{option} has no effect without {needed}")


def named(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """For `callback=`: BadParameter if the name is empty, as of a shell variable that is not set. librdkafka aborts the
    process when a group's name is empty.
    """
    if value is not None and not value.strip():
        raise click.BadParameter("the name is empty", context, parameter)
    return value


def _present(value: object) -> bool:
    return value is not None and value is not False and value != ()
