"""kafka-server-stop: SIGTERM to the nodes of this machine and this user, all or those that the flags name."""

from __future__ import annotations

import os
import re
import signal
import sys

from ottla.client.settings import load_properties
from ottla.system.processes import own_processes, working_directory


def main(arguments: list[str]) -> int:
    criteria: dict[str, str] = {}
    words = list(arguments)
    while words:
        match = re.fullmatch(r"--(process-role|node-id)(?:=(.*))?", words.pop(0))
        if not match or (match[2] is None and not words):
            print("usage: kafka-server-stop.sh [--process-role=ROLE] [--node-id=ID]", file=sys.stderr)
            return 1
        criteria[match[1]] = words.pop(0) if match[2] is None else match[2]
    if "process-role" in criteria and "node-id" in criteria:
        print("Only one of --process-role and --node-id can be given.", file=sys.stderr)
        return 1
    pids = [pid for pid, file in servers() if _matches(file, criteria)]
    if not pids:
        print("No kafka server to stop")
        return 1
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    return 0


def servers() -> list[tuple[int, str]]:
    """Process ids of this user's nodes, with their properties files."""
    nodes = []
    for process in own_processes():
        file = _config_file(process.words)
        if file is not None and process.pid != os.getpid():
            nodes.append((process.pid, os.path.join(working_directory(process.pid) or "", file)))
    return nodes


def _config_file(words: list[str]) -> str | None:
    for index, word in enumerate(words):
        if word == "kafka.Kafka" or (word == "start" and words[index - 1 : index] == ["server"]):
            return next((other for other in words[index + 1 :] if not other.startswith("-")), None)
        if word == "server-start" and "ottla.cli.kafka" in words:
            return next((other for other in words[index + 1 :] if not other.startswith("-")), None)
    return None


def _matches(file: str, criteria: dict[str, str]) -> bool:
    if not criteria:
        return True
    try:
        properties = load_properties(file)
    except OSError:
        return False
    if "node-id" in criteria:
        return properties.get("node.id") == criteria["node-id"]
    roles = {role.strip() for role in properties.get("process.roles", "").split(",")}
    return roles == {role.strip() for role in criteria["process-role"].split(",")}
