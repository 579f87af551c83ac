"""kafka-metadata-shell: a cluster's metadata as a tree to walk, from a snapshot or a folder of the metadata log.

Records are replayed into an image, and metadata_tree makes names and texts of it. Files are only read, and without a lock:
a running node's metadata can be looked at too.
"""

from __future__ import annotations

import shlex
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from ottla.cli.kafka.arguments import ToolParser
from ottla.cli.kafka.metadata_tree import Tree, metadata_tree
from ottla.cli.kafka.options import Exit
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataError, MetadataImage
from ottla.metadata.records import decode_frame
from ottla.metadata.replay import replay
from ottla.model.errors import KafkaError
from ottla.protocol.primitives import DecodeError
from ottla.protocol.records_header import iterate_batches
from ottla.protocol.records_walk import iterate_records

_ONE_SHOT = ("cat", "find", "ls", "tree")
_HELP = """Welcome to the Apache Kafka metadata shell.

cat FILE...: show the contents of metadata files
cd DIR: set the current working directory
exit, quit: leave the shell
find [DIR...]: search for nodes in the directory hierarchy
help: show this help
history [N]: the commands so far
ls [PATH...]: list metadata nodes
man COMMAND: what a command does
pwd: print the current working directory
tree PATH...: show the contents of metadata nodes in a tree structure"""
_MAX_HISTORY = 1000


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-metadata-shell", "The Apache Kafka metadata shell")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--snapshot", "-s", help="A snapshot or a segment of the metadata log.")
    where.add_argument("--directory", "-d", help="The folder of the metadata log (not in Kafka's tool).")
    parser.add_argument("command", nargs="*", help="The command to run.")
    try:
        parsed = parser.parse(arguments)
        if parsed.directory is None and parsed.snapshot is None:
            parser.error("argument --snapshot/-s is required")
        shell = Shell(load(_files(parsed.directory, parsed.snapshot)))
        if parsed.command:
            return shell.once(parsed.command)
    except Exit as end:
        return end.code
    except FileNotFoundError as reason:
        print(f"Unexpected error: java.nio.file.NoSuchFileException: {reason.filename}", file=sys.stderr)
        return 1
    except (OSError, DecodeError, KafkaError, MetadataError) as reason:
        print(f"Unexpected error: {reason}", file=sys.stderr)
        return 1
    return _interactive(shell)


def _files(directory: str | None, snapshot: str | None) -> list[Path]:
    if snapshot:
        return [Path(snapshot)]
    folder = Path(directory or "")
    folder = folder / "__cluster_metadata-0" if (folder / "__cluster_metadata-0").is_dir() else folder
    logs = sorted(folder.glob("*.log"))
    snapshots = sorted(folder.glob("*-*.checkpoint"))
    if not logs and not snapshots:
        raise OSError(f"{folder} has no metadata log")
    return snapshots[-1:] + logs


def load(files: list[Path]) -> Tree:
    """Snapshot first, then the log from its end on."""
    image, delta = MetadataImage(), MetadataDelta()
    last, epoch, time_ms = -1, -1, -1
    for file in files:
        data = file.read_bytes()
        is_log = file.suffix == ".log"
        numbers = file.stem.split("-")
        if not is_log and len(numbers) == 2 and all(map(str.isdigit, numbers)):
            last, epoch = int(numbers[0]) - 1, int(numbers[1])
        for position, header in iterate_batches(data):
            if header.is_control or (is_log and header.last_offset <= last):
                continue
            for record in iterate_records(data, position):
                if record.value is not None and (not is_log or record.offset > last):
                    replay(image, delta, decode_frame(record.value))
            time_ms = header.max_timestamp
            if is_log:
                last, epoch = header.last_offset, header.leader_epoch
    return metadata_tree(image, last, epoch, time_ms)


class Shell:
    def __init__(self, root: Tree) -> None:
        self._root = root
        self._where: tuple[str, ...] = ()
        self._history: list[str] = []

    def once(self, words: list[str]) -> int:
        """One command from the command line: those that only look."""
        if words[0] not in _ONE_SHOT:
            choices = ", ".join(f"'{name}'" for name in _ONE_SHOT)
            print(f"invalid choice: '{words[0]}' (choose from {choices})")
        elif words[0] in {"cat", "tree"} and len(words) == 1:
            print("too few arguments")
        else:
            self.run(words)
        return 0

    def run(self, words: list[str]) -> bool:
        """One command; False when it is time to go."""
        if not words:
            return True
        self._history = [*self._history[-_MAX_HISTORY:], shlex.join(words)]
        name, arguments = words[0], words[1:]
        if name in {"exit", "quit"}:
            return False
        commands = {
            "ls": self._ls, "cat": self._cat, "cd": self._cd, "pwd": self._pwd, "tree": self._tree, "find": self._find,
            "history": self._show_history, "help": self._help, "man": self._help,
        }  # fmt: skip
        if name not in commands:
            print(f"No such command '{name}'.")
        else:
            commands[name](arguments)
        return True

    def _at(self, path: str) -> list[tuple[str, Tree | str]]:
        """Everything that a path with * and ? means, with its name."""
        parts = [] if path.startswith("/") else list(self._where)
        for part in filter(None, path.split("/")):
            if part == "..":
                parts = parts[:-1]
            elif part != ".":
                parts.append(part)
        matches: list[tuple[str, Tree | str]] = [("", self._root)]
        for part in parts:
            matches = [
                (f"{name}/{child}", value[child])
                for name, value in matches
                if isinstance(value, dict)
                for child in sorted(value)
                if fnmatchcase(child, part)
            ]
        return matches

    def _ls(self, words: list[str]) -> None:
        """Files first, then folders, these with their names when there is more than one thing to show."""
        files: list[str] = []
        folders: list[tuple[str, Tree]] = []
        for path in words or ["."]:
            matches = self._at(path)
            if not matches:
                print(f"ls: {path}: no such file or directory.")
            for name, value in matches:
                base = name.rpartition("/")[2]
                if isinstance(value, dict):
                    folders.append((base, value))
                else:
                    files.append(base)
        blocks = ["\n".join(sorted(files))] if files else []
        many = len(files) + len(folders) > 1
        for base, tree in folders:
            listed = "\n".join(sorted(tree))
            blocks.append(f"{base}:\n{listed}".rstrip("\n") if many else listed)
        shown = "\n\n".join(blocks)
        if shown:
            print(shown)

    def _cat(self, words: list[str]) -> None:
        for path in words:
            matches = self._at(path)
            if not matches:
                print(f"cat: {path}: No such file or directory.")
            for _, value in matches:
                print(f"cat: {path}: Is a directory" if isinstance(value, dict) else value)

    def _cd(self, words: list[str]) -> None:
        path = words[0] if words else "/"
        matches = self._at(path)
        if len(matches) != 1:
            print(f"cd: {path}: no such file or directory." if not matches else f"cd: {path}: too many arguments.")
        elif not isinstance(matches[0][1], dict):
            print(f"cd: {path}: not a directory.")
        else:
            self._where = tuple(filter(None, matches[0][0].split("/")))

    def _pwd(self, words: list[str]) -> None:
        del words
        print("/" + "/".join(self._where))

    def _tree(self, words: list[str]) -> None:
        for path in words or ["."]:
            matches = self._at(path)
            if not matches:
                print(f"tree: {path}: No such file or directory.")
            for _, value in matches:
                _show(value, 0)

    def _find(self, words: list[str]) -> None:
        for path in words or ["."]:
            matches = self._at(path)
            if not matches:
                print(f"find: {path}: no such file or directory.")
            for name, value in matches:
                start = path if path == "." or "*" not in path else name
                _list_below(start.rstrip("/") or "/", value)

    def _show_history(self, words: list[str]) -> None:
        count = int(words[0]) if words and words[0].isdigit() else len(self._history)
        first = max(len(self._history) - count, 0)
        for number, line in enumerate(self._history[first:], first + 1):
            print(f"{number:>5}  {line}")

    def _help(self, words: list[str]) -> None:
        help_lines = [line for line in _HELP.splitlines() if words and words[0] in line.partition(":")[0].split(" ")[0]]
        print("\n".join(help_lines) or _HELP)


def _show(value: Tree | str, depth: int) -> None:
    indent = "  " * depth
    if not isinstance(value, dict):
        print(f"{indent}{value}")
        return
    for name in sorted(value):
        print(f"{indent}{name}:")
        _show(value[name], depth + 1)


def _list_below(name: str, value: Tree | str) -> None:
    print(name)
    for child in sorted(value) if isinstance(value, dict) else ():
        _list_below(f"{name.rstrip('/')}/{child}", value[child])  # type: ignore[index]  # a dict, as the loop shows


def _interactive(shell: Shell) -> int:
    if sys.stdin.isatty():
        print("[ Kafka Metadata Shell ]")
    while True:
        if sys.stdin.isatty():
            print(">> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return 0
        try:
            if not shell.run(shlex.split(line)):
                return 0
        except ValueError as reason:
            print(f"Syntax error: {reason}")
