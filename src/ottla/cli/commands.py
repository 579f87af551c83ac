"""The commands of `ottla`, by name. Each command is imported when it is called, so `ottla --help` imports none of them.

To add a verb, write `ottla/cli/verbs/VERB.py` with a click command or group. Then add one row to `_COMMANDS`: the module, the
name of the command in the module, and its line in the help.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

import click

from ottla import __version__
from ottla.cli.examples import EXAMPLES
from ottla.model.extras import SPARK, missing_extra_of
from ottla.model.peer_text import visible
from ottla.model.user_error import UserError

_COMMANDS = {
    "acl": ("ottla.cli.verbs.acl", "acl", "List, add and remove access rules (ACLs)."),
    "audit": ("ottla.cli.verbs.audit", "audit", "Export the audit log to files, syslog and topics."),
    "backup": ("ottla.cli.verbs.backup", "backup", "Back up a cluster, verify backups and restore them."),
    "bench": ("ottla.cli.verbs.bench", "bench", "Measure the throughput and latency of a cluster."),
    "completion": ("ottla.cli.verbs.completion", "completion", "Shell completion."),
    "config": ("ottla.cli.verbs.config", "config", "Show and change settings of topics, brokers and groups."),
    "consume": ("ottla.cli.verbs.consume", "consume", "Read records of a topic: from a time, filtered, decoded."),
    "doctor": ("ottla.cli.verbs.doctor", "doctor", "Find problems of a connection or a cluster, and what to do."),
    "export": ("ottla.cli.verbs.export", "export_", "Write a topic into a file: JSON lines or Parquet."),
    "group": ("ottla.cli.verbs.group", "group", "List, describe, reset and delete consumer groups."),
    "import": ("ottla.cli.verbs.export", "import_", "Write the records of a file into a topic."),
    "produce": ("ottla.cli.verbs.produce", "produce", "Write records."),
    "profile": ("ottla.cli.verbs.profile", "profile", "Named clusters."),
    "topic": ("ottla.cli.verbs.topic", "topic", "List, create, describe, alter and delete topics."),
    "txn": ("ottla.cli.verbs.txn", "txn", "List, describe and terminate transactions."),
    "user": ("ottla.cli.verbs.user", "user", "List, add and remove users that log in with a password."),
    "console": ("ottla.cli.verbs.console", "console", "Run the web console for any Kafka cluster."),
    "registry": ("ottla.cli.verbs.registry", "registry", "Run a schema registry."),
    "schema": ("ottla.cli.verbs.schema", "schema", "List, get, register, check, compare and delete schemas."),
    "cluster": ("ottla.cli.verbs.cluster", "cluster", "Show a cluster and move partitions between its nodes."),
    "connect": ("ottla.cli.verbs.connect", "connect", "Run connectors between topics, files, databases and tables."),
    "pipeline": ("ottla.cli.verbs.pipeline", "pipeline", "Run, start, stop and show data pipelines on Spark."),
    "sql": ("ottla.cli.verbs.sql", "sql", "Query topics in SQL, without a JVM."),
    "server": ("ottla.cli.verbs.server", "server", "Run one node from a server.properties file."),
    "shims": ("ottla.cli.verbs.shims", "shims", "Write Kafka's tools (kafka-topics.sh, ...) into a folder."),
    "simulate": ("ottla.cli.verbs.simulate", "simulate", "Run a cluster with your own faults in virtual time."),
    "storage": ("ottla.cli.verbs.storage", "storage", "Generate ids, format log directories and show their state."),
    "top": ("ottla.cli.verbs.top", "top", "Show brokers, topics and groups live in the terminal."),
    "example": ("ottla.examples.command", "example", "Run a whole example on Spark and check its results."),
    "up": ("ottla.cli.verbs.up", "up", "Start a log on this machine with one command."),
}


def _refuse(ctx: click.Context, error: UserError) -> NoReturn:
    click.echo(f"ottla: {visible(str(error), lines=True)}", err=True)  # an error may quote a peer
    ctx.exit(1)


class _LazyGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Prints every error that a person can put right: one line on stderr, and exit code 1."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            return _refuse(ctx, error)
        except ModuleNotFoundError as failure:
            verb = ctx.invoked_subcommand
            missing = missing_extra_of(failure, f"ottla {verb}", SPARK if verb == "pipeline" else None)
            if missing is None:
                raise
            return _refuse(ctx, missing)

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
    """Completes the help of a command: the lines of its examples, and the environment variables of its options.

    Click keeps the lines of a paragraph that begins with a backspace; a raw docstring has it as two characters.
    """
    if command.help is not None:
        command.help = command.help.replace("\\b\n", "\b\n")
    if path in EXAMPLES and EXAMPLES[path] not in (command.epilog or ""):
        command.epilog = f"\b\nExample:\n  {EXAMPLES[path]}"
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar:
            option.show_envvar = True
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            _keep_lines(part, f"{path} {name}")


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ottla")
def ottla() -> None:
    r"""\b
    A commit log that implements Apache Kafka's protocol. Example:
      ottla up
    """


_keep_lines(ottla, "")
