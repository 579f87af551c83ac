"""kafka-metadata-shell: a cluster's metadata as a tree to walk, from a snapshot or a folder of the metadata log.

Records are replayed into a plain tree of names; `ls`, `cat`, `cd`, `pwd`, `tree`, `find`, `help` and `exit` walk it. Files
are only read.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ottla.cli.kafka.arguments import ToolParser
from ottla.cli.kafka.formatters_internal import jsonable
from ottla.cli.kafka.options import Exit
from ottla.metadata.records import decode_frame
from ottla.model.errors import KafkaError
from ottla.protocol.primitives import DecodeError
from ottla.protocol.records_header import iterate_batches
from ottla.protocol.records_walk import iterate_records

Tree = dict[str, Any]


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-metadata-shell", "The Apache Kafka metadata shell.")
    parser.add_argument("-d", "--directory", help="The folder of the metadata log.")
    parser.add_argument("-s", "--snapshot", help="A snapshot or a segment of the metadata log.")
    parser.add_argument("command", nargs="*", help="A command to run instead of asking for them.")
    try:
        given = parser.parse(arguments)
        if bool(given.directory) == bool(given.snapshot):
            print("You must set either --directory or --snapshot (not both).", file=sys.stderr)
            return 1
        shell = Shell(load(_files(given.directory, given.snapshot)))
    except Exit as end:
        return end.code
    except (OSError, DecodeError, KafkaError) as reason:
        print(f"Unexpected error: {reason}", file=sys.stderr)
        return 1
    if given.command:
        shell.run(given.command)
        return 0
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
    root: Tree = {
        "image": {"cluster": {}, "features": {}, "topics": {"byName": {}, "byId": {}}, "configs": {}, "acls": {}},
        "local": {},
    }
    image: Tree = root["image"]
    last = -1
    for file in files:
        data = file.read_bytes()
        if file.suffix == ".checkpoint":
            last = int(file.name.partition("-")[0]) - 1
        for position, header in iterate_batches(data):
            if header.is_control or (file.suffix == ".log" and header.last_offset <= last):
                continue
            for record in iterate_records(data, position):
                if record.value is not None and (file.suffix == ".checkpoint" or record.offset > last):
                    _replay(image, decode_frame(record.value))
            if file.suffix == ".log":
                last = header.last_offset
    root["local"]["lastAppliedOffset"] = last
    return root


def _replay(image: Tree, record: Any) -> None:
    kind, facts = type(record).__name__, jsonable(record)
    names, ids = image["topics"]["byName"], image["topics"]["byId"]
    if kind == "FeatureLevelRecord":
        image["features"][facts["name"]] = facts["featureLevel"]
    elif kind == "TopicRecord":
        topic = {"id": facts["topicId"], "name": facts["name"], "partitions": {}}
        names[facts["name"]] = ids[facts["topicId"]] = topic
    elif kind == "RemoveTopicRecord":
        names.pop(ids.pop(facts["topicId"], {}).get("name"), None)
    elif kind in {"PartitionRecord", "PartitionChangeRecord"} and facts["topicId"] in ids:
        partition = ids[facts["topicId"]]["partitions"].setdefault(str(facts["partitionId"]), {})
        partition.update({name: value for name, value in facts.items() if value is not None and name != "topicId"})
    elif kind == "RegisterBrokerRecord":
        image["cluster"][str(facts["brokerId"])] = {**facts, "fenced": True}
    elif kind == "RegisterControllerRecord":
        image["cluster"].setdefault(f"controller-{facts['controllerId']}", facts)
    elif kind == "UnregisterBrokerRecord":
        image["cluster"].pop(str(facts["brokerId"]), None)
    elif kind == "BrokerRegistrationChangeRecord" and str(facts["brokerId"]) in image["cluster"] and facts["fenced"]:
        image["cluster"][str(facts["brokerId"])]["fenced"] = facts["fenced"] > 0
    elif kind == "ConfigRecord":
        names_of = {2: "TOPIC", 4: "BROKER", 16: "CLIENT_METRICS", 32: "GROUP"}
        where = f"{names_of.get(facts['resourceType'], facts['resourceType'])}:{facts['resourceName']}"
        settings = image["configs"].setdefault(where, {})
        settings.pop(facts["name"], None) if facts["value"] is None else settings.update(
            {facts["name"]: facts["value"]}
        )
    elif kind == "AccessControlEntryRecord":
        image["acls"][facts["id"]] = facts
    elif kind == "RemoveAccessControlEntryRecord":
        image["acls"].pop(facts["id"], None)
    elif kind == "ProducerIdsRecord":
        image["producerIds"] = {"nextProducerId": facts["nextProducerId"]}


class Shell:
    def __init__(self, root: Tree) -> None:
        self._root = root
        self._where: tuple[str, ...] = ()

    def run(self, words: list[str]) -> bool:
        """One command; False when it is time to go."""
        if not words:
            return True
        name, rest = words[0], words[1:]
        if name in {"exit", "quit"}:
            return False
        commands = {
            "ls": self._ls,
            "cat": self._cat,
            "cd": self._cd,
            "pwd": self._pwd,
            "tree": self._tree,
            "find": self._find,
        }
        if name in {"help", "man"}:
            print("Welcome to the Apache Kafka metadata shell.\n\ncat, cd, exit, find, help, ls, pwd, quit, tree")
        elif name not in commands:
            print(f"No such command '{name}'.")
        else:
            commands[name](rest)
        return True

    def _at(self, path: str) -> list[tuple[str, Any]]:
        """Everything that a path with * and ? means, with its name."""
        parts = [] if path.startswith("/") else list(self._where)
        for part in filter(None, path.split("/")):
            if part == "..":
                parts = parts[:-1]
            elif part != ".":
                parts.append(part)
        found: list[tuple[str, Any]] = [("", self._root)]
        for part in parts:
            found = [
                (f"{name}/{child}", value[child])
                for name, value in found
                if isinstance(value, dict)
                for child in sorted(value)
                if fnmatchcase(child, part)
            ]
        return found

    def _ls(self, words: list[str]) -> None:
        for path in words or ["."]:
            found = self._at(path)
            if not found:
                print(f"ls: {path}: no such file or directory.")
            for name, value in found:
                if len(found) > 1:
                    print(f"{name}:")
                print("  ".join(sorted(value)) if isinstance(value, dict) else name.rpartition("/")[2])

    def _cat(self, words: list[str]) -> None:
        for path in words:
            found = self._at(path)
            if not found:
                print(f"cat: {path}: No such file or directory.")
            for _, value in found:
                print(json.dumps(value, indent=2) if isinstance(value, (dict, list)) else value)

    def _cd(self, words: list[str]) -> None:
        found = self._at(words[0] if words else "/")
        if len(found) != 1 or not isinstance(found[0][1], dict):
            print(f"cd: {words[0] if words else '/'}: no such file or directory.")
            return
        self._where = tuple(filter(None, found[0][0].split("/")))

    def _pwd(self, words: list[str]) -> None:
        del words
        print("/" + "/".join(self._where))

    def _tree(self, words: list[str]) -> None:
        for path in words or ["."]:
            for _, value in self._at(path):
                for depth, name, leaf in _walk(value):
                    print(f"{'  ' * depth}{name}" + ("" if leaf is None else f": {leaf}"))

    def _find(self, words: list[str]) -> None:
        for path in words or ["."]:
            for name, value in self._at(path):
                print(name or "/")
                stack = [(name, value)]
                while stack:
                    above, here = stack.pop()
                    for child in sorted(here, reverse=True) if isinstance(here, dict) else ():
                        print(f"{above}/{child}")
                        stack.append((f"{above}/{child}", here[child]))


def _walk(value: Any, depth: int = 0) -> Iterator[tuple[int, str, Any]]:
    for name in sorted(value) if isinstance(value, dict) else ():
        child = value[name]
        yield depth, name, None if isinstance(child, dict) else child
        yield from _walk(child, depth + 1)


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
