"""The commands of `ottla`, by name. Each command is imported when it is called, so `ottla --help` imports none of them.

To add a verb, write `ottla/cli/verbs/VERB.py` with a click command or group. Then add one row to `_COMMANDS`: the module, the
name of the command in the module, and its line in the help.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from ottla import __version__
from ottla.cli.examples import EXAMPLES
from ottla.model.peer_text import visible
from ottla.model.user_error import UserError

_COMMANDS = {
    "acl": ("ottla.cli.verbs.acl", "acl", "Who may do what."),
    "audit": ("ottla.cli.verbs.audit", "audit", "The audit log: to files, syslog and topics."),
    "bench": ("ottla.cli.verbs.bench", "bench", "Measure a cluster from here."),
    "completion": ("ottla.cli.verbs.completion", "completion", "Shell completion."),
    "config": ("ottla.cli.verbs.config", "config", "Settings of topics, brokers, groups."),
    "consume": ("ottla.cli.verbs.consume", "consume", "Read a topic: by time, filtered, decoded."),
    "doctor": ("ottla.cli.verbs.doctor", "doctor", "Find what is wrong with a connection or a cluster."),
    "export": ("ottla.cli.verbs.export", "export_", "A topic into a file: JSON lines or Parquet."),
    "group": ("ottla.cli.verbs.group", "group", "Consumer groups and their lag."),
    "import": ("ottla.cli.verbs.export", "import_", "A file into a topic."),
    "produce": ("ottla.cli.verbs.produce", "produce", "Write records."),
    "profile": ("ottla.cli.verbs.profile", "profile", "Named clusters."),
    "topic": ("ottla.cli.verbs.topic", "topic", "Topics: list, create, describe, alter, delete."),
    "txn": ("ottla.cli.verbs.txn", "txn", "Transactions that are open."),
    "user": ("ottla.cli.verbs.user", "user", "Users that log in with a password."),
    "console": ("ottla.cli.verbs.console", "console", "Run the web console, against any Kafka."),
    "registry": ("ottla.cli.verbs.registry", "registry", "Run a schema registry."),
    "schema": ("ottla.cli.verbs.schema", "schema", "List, get, register, check, compare and delete schemas."),
    "cluster": ("ottla.cli.verbs.cluster", "cluster", "Look at a cluster and move partitions between its nodes."),
    "connect": (
        "ottla.cli.verbs.connect",
        "connect",
        "Run connectors: data in from files and databases, out to tables.",
    ),
    "pipeline": ("ottla.cli.verbs.pipeline", "pipeline", "Run, start, stop and look at data pipelines on Spark."),
    "sql": ("ottla.cli.verbs.sql", "sql", "Ask topics in SQL, with no JVM."),
    "server": ("ottla.cli.verbs.server", "server", "Run one node from a server.properties file."),
    "shims": ("ottla.cli.verbs.shims", "shims", "Write Kafka's tools (kafka-topics.sh, ...) into a folder."),
    "storage": ("ottla.cli.verbs.storage", "storage", "Make ids, format log directories, look at them."),
    "top": ("ottla.cli.verbs.top", "top", "The cluster in a terminal, live."),
    "up": ("ottla.cli.verbs.up", "up", "Start a log on this machine with one command."),
}


class _LazyGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Prints every error that a person can put right: one line on stderr, and exit code 1."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            click.echo(f"ottla: {visible(str(error), lines=True)}", err=True)  # an error may quote a peer
            ctx.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        _keep_lines(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][2]) for name in sorted(_COMMANDS)])


def _keep_lines(command: click.Command, path: str) -> None:
    """Click keeps the lines of a paragraph that begins with a backspace; a raw docstring has it as two characters."""
    if command.help is not None:
        command.help = command.help.replace("\\b\n", "\b\n")
    if path in EXAMPLES and EXAMPLES[path] not in (command.epilog or ""):
        command.epilog = f"\b\nExample:\n  {EXAMPLES[path]}"
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            _keep_lines(part, f"{path} {name}")


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ottla")
def ottla() -> None:
    r"""Ottla: a commit log that speaks Apache Kafka's protocol.

    \b
    Examples:
      ottla up
      ottla consume orders --from -10m
    """


_keep_lines(ottla, "")
