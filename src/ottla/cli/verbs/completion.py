"""`ottla completion SHELL`: the script that completes verbs, options, topics and groups with the Tab key."""

from __future__ import annotations

import click

SCRIPTS = {
    "bash": 'eval "$(_OTTLA_COMPLETE=bash_source ottla)"',
    "zsh": 'eval "$(_OTTLA_COMPLETE=zsh_source ottla)"',
    "fish": "_OTTLA_COMPLETE=fish_source ottla | source",
}


@click.command()
@click.argument("shell", type=click.Choice(sorted(SCRIPTS)))
def completion(shell: str) -> None:
    r"""Print the line for your shell's start-up file.

    The Tab key then completes verbs and options, and the names of topics and groups if a cluster answers within 1 s.

    \b
    Example:
      ottla completion bash >> ~/.bashrc
    """
    click.echo(SCRIPTS[shell])
