"""`-o`, `--output`: the format of what a verb prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def output_option(*formats: str) -> Callable[[CommandT], CommandT]:
    """The option with these formats; the first is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Format of the output.",
    )
