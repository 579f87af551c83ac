"""The status of a running connector: a file in the state directory that `ottla pipeline serve` shows to the console.

A connector that cannot write its status file continues to run. To stop one of several connectors in a process, the
console's button creates the file NAME.stop in that directory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import click

from ottla.model.user_error import UserError
from ottla.pipelines import supervisor

_EVERY_S = 0.5


class ConnectorStatus:
    def __init__(self, state: str | None, config: Mapping[str, str], words: list[str]) -> None:
        self._name = config.get("name", "")
        inputs, outputs = ends(config)
        kind = config.get("connector.class", "")
        self._facts = {"name": self._name, "kind": "connector", "class": kind, "inputs": inputs, "outputs": outputs}
        self._rows = 0
        self._lag: int | None = None
        self._before: tuple[float, int] = (time.monotonic(), 0)
        self._status = self._stop_file = ""
        try:
            definition, self._status, _ = supervisor.paths(supervisor.state_directory(state), self._name)
            self._stop_file = supervisor.stop_file(self._status)
            started = {"command": ["connect", "run"], "words": words, "cwd": os.getcwd(), "pid": os.getpid()}
            supervisor.write_json(definition, {"name": self._name, **started, "started": time.time()})
            supervisor.forget_stop(self._status)
        except (OSError, UserError) as problem:
            self._status = ""
            click.echo(
                f"ottla: {self._name} is missing in the console, because its status file cannot be written: {problem}",
                err=True,
            )
        self._write("running")

    def progress(self, rows: int, lag: int | None) -> None:
        self._rows, self._lag = rows, lag
        if time.monotonic() - self._before[0] >= _EVERY_S:
            self._write("running")

    def restarting(self, error: str) -> None:
        self._write("restarting", error)

    def asked_to_stop(self) -> bool:
        return bool(self._stop_file) and os.path.exists(self._stop_file)

    def end(self, state: str, error: str = "") -> None:
        self._write(state, error)
        if self._status:
            supervisor.forget_stop(self._status)

    def _write(self, state: str, error: str = "") -> None:
        now, (at, rows) = time.monotonic(), self._before
        rate = (self._rows - rows) / (now - at) if state == "running" and now > at else 0.0
        self._before = now, self._rows
        if not self._status:
            return
        counts = {"rows": self._rows, "rows_per_second": rate, "lag": self._lag, "error": error, "at": time.time()}
        try:
            supervisor.write_json(self._status, {**self._facts, "state": state, **counts})
        except OSError as problem:  # a full disk is no reason to stop moving records
            click.echo(f"ottla: the status of {self._name} was not written: {problem}", err=True)


def ends(config: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """What it reads and what it writes, as pipelines name theirs; nothing that may hold a password."""
    kind = config.get("connector.class", "").rpartition(":")[2]
    other = f"{'sql' if kind.startswith('sql') else 'connector'}:{config.get('file') or kind}"
    topics = [f"topic:{topic.strip()}" for topic in config.get("topics", "").split(",") if topic.strip()]
    if topics or "topics.regex" in config:
        return topics or [f"topics like:{config['topics.regex']}"], [other]
    topic = config.get("topic") or config.get("topic.prefix", "")
    return [other], [f"topic:{topic}"] if topic else []
