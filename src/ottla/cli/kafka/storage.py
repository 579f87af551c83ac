"""kafka-storage: make ids, format log directories, look at them, and what a release's features are."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.cli.kafka.arguments import ToolParser
from ottla.cli.kafka.options import Exit
from ottla.cli.kafka.release_features import STORAGE_WORDS, ReleaseError, dependencies_lines, mapping_lines


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-storage", "The Kafka storage tool.", help_code=0)
    commands = parser.commands()
    info = parser.command(commands, "info", "Show the state of this node's log directories.")
    info.add_argument("-c", "--config", required=True, help="Path of the server.properties file.")
    _format_arguments(parser.command(commands, "format", "Format the log directories of this node."))
    mapping = parser.command(commands, "version-mapping", "Show the feature levels of a release.")
    mapping.add_argument("-r", "--release-version", help="Release, such as 4.3 (default: the newest).")
    dependencies = parser.command(
        commands, "feature-dependencies", "Show the levels of other features that a feature level requires."
    )
    dependencies.add_argument("-f", "--feature", action="append", required=True, help="NAME=LEVEL; may be repeated.")
    parser.command(commands, "random-uuid", "Print a new id.")
    try:
        parsed = parser.parse(arguments)
        return _run(parsed.command, vars(parsed))
    except Exit as end:
        return end.code
    except ReleaseError as reason:
        print(reason, file=sys.stderr)
        return 1


def _format_arguments(parser: ToolParser) -> None:
    parser.add_argument("-c", "--config", required=True, help="Path of the server.properties file.")
    parser.add_argument("-t", "--cluster-id", required=True, help="The cluster's id.")
    parser.add_argument("-S", "--add-scram", action="append", help="SCRAM credential to create.")
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="Skip directories that are already formatted."
    )
    parser.add_argument("-r", "--release-version", help="Release whose feature levels the cluster starts with.")
    parser.add_argument("-f", "--feature", action="append", help="NAME=LEVEL; may be repeated.")
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument("-s", "--standalone", action="store_true", help="Format the first controller of a new quorum.")
    quorum.add_argument(
        "-N", "--no-initial-controllers", action="store_true", help="Format a node that joins an existing quorum."
    )
    quorum.add_argument("-I", "--initial-controllers", help="ID@HOST:PORT:DIRECTORY_ID,... of a new quorum.")


def _run(command: str, arguments: dict[str, object]) -> int:
    if command == "random-uuid":
        from ottla.server.formatting.storage import random_uuid

        print(random_uuid())
        return 0
    if command == "version-mapping":
        print("\n".join(mapping_lines(_text(arguments, "release_version"))))
        return 0
    if command == "feature-dependencies":
        for line in dependencies_lines(_texts(arguments, "feature"), STORAGE_WORDS):
            print(line)
        return 0
    file = _text(arguments, "config") or ""
    if not Path(file).exists():
        print(f"java.nio.file.NoSuchFileException: {file}", file=sys.stderr)
        return 1
    from ottla.server.formatting.format_command import FormatOptions, format_from_file, info_from_file

    if command == "info":
        return info_from_file(Path(file), prefix="")
    return format_from_file(
        Path(file),
        FormatOptions(
            cluster_id=_text(arguments, "cluster_id") or "",
            standalone=bool(arguments["standalone"]),
            no_initial_controllers=bool(arguments["no_initial_controllers"]),
            initial_controllers=_text(arguments, "initial_controllers"),
            release_version=_text(arguments, "release_version"),
            features=tuple(_texts(arguments, "feature")),
            scram=tuple(_texts(arguments, "add_scram")),
            ignore_formatted=bool(arguments["ignore_formatted"]),
            as_kafka=True,
        ),
        prefix="",
    )


def _text(arguments: dict[str, object], name: str) -> str | None:
    value = arguments[name]
    return None if value is None else str(value)


def _texts(arguments: dict[str, object], name: str) -> list[str]:
    value = arguments[name]
    return [str(item) for item in value] if isinstance(value, list) else []
