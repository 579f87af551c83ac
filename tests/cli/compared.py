"""One call of a tool, run as Apache Kafka's and as ours on the same server, and what differs.

Calls that change something have NAME in them: each side gets a name of its own, of the same length, so that both find the
same state.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cli.tools import Printed, comparable, javas, ours
from tests.support.apache_kafka import ApacheKafka
from tests.support.caught_up import catch_up

NAMES = ("javas", "ottlx")
LOOKS = re.compile(r"--list|describe|get-offsets|metadata-shell|^e2e-latency|^acls .*--(add|remove) ")
CHANGES = re.compile(
    r"--(create|alter|delete|add|remove|execute|verify|cancel|delete-offsets)\b|abort|^(console|verifiable|e2e|\w+-perf)"
)


class Call(NamedTuple):
    words: str
    """The tool and its arguments; SERVER, CONTROLLER, FOLDER and NAME are filled in."""
    rows: bool = False
    """Whether the lines have no order of their own (Java prints hash maps)."""
    masks: tuple[str, ...] = ()
    stdin: str = ""
    json_lines: bool = False
    """Whether lines are JSON whose fields have no order."""
    apache_only: str = ""
    """Why Ottla's server cannot be asked this yet."""


def calls(text: str, **options: object) -> list[Call]:
    return [Call(line.strip(), **options) for line in text.strip().splitlines() if line.strip()]  # type: ignore[arg-type]


def run_both(call: Call, server: ApacheKafka, folder: Path) -> tuple[Printed, Printed]:
    sides = []
    for run, name in zip((javas, ours), NAMES, strict=True):
        known = {
            "SERVER": server.bootstrap_servers,
            "CONTROLLER": f"127.0.0.1:{server.controller_port}",
            "FOLDER": str(folder),
            "NAME": name,
        }
        words = shlex.split(call.words)
        for key, value in known.items():
            words = [word.replace(key, value) for word in words]
        tool, *arguments = words
        printed = run(tool, arguments, call.stdin)
        own = name if "NAME" in call.words else "\0"
        plain = Printed(printed.code, *(text.replace(own, "NAME") for text in printed[1:]))
        sides.append(comparable(plain, rows=call.rows, masks=call.masks, json_lines=call.json_lines))
    return sides[0], sides[1]


def settled(call: Call, server: ApacheKafka, folder: Path) -> tuple[Printed, Printed]:
    """What looks may look again: a group changes a moment after its member has left, Java's metadata shell has a loader
    of its own, `acls` prints the rules right after it has changed them, and Java's e2e-latency cannot wait for the topic
    that it makes."""
    deadline = time.monotonic() + 20
    looks = LOOKS.search(call.words) is not None
    while True:
        theirs, mine = run_both(call, server, folder)
        if theirs == mine or not looks or time.monotonic() > deadline:
            if CHANGES.search(call.words) and theirs.code == mine.code == 0:
                catch_up(server.bootstrap_servers)
            return theirs, mine


def differences(asked: Sequence[Call], server: ApacheKafka, folder: Path) -> list[str]:
    for name in NAMES:
        (folder / f"{name}.csv").write_text(f"{name},0,1\n")
        (folder / f"{name}.json").write_text(
            f'{{"version": 1, "partitions": [{{"topic": "{name}", "partition": 1, "offset": 1}},'
            f' {{"topic": "{name}", "partition": 2, "offset": -1}}, {{"topic": "{name}", "partition": 3, "offset": 999}}]}}'
        )
        (folder / f"{name}-move.json").write_text(f'{{"version": 1, "topics": [{{"topic": "{name}.with_both"}}]}}')
        (folder / f"{name}-plan.json").write_text(
            f'{{"version": 1, "partitions": [{{"topic": "{name}", "partition": 0, "replicas": [1], "log_dirs": ["any"]}}]}}'
        )
    found = []
    for call in asked:
        theirs, mine = settled(call, server, folder)
        if theirs != mine:
            found.append(f"{call.words}\n  Apache Kafka's: {theirs}\n  ours:           {mine}")
    return found
