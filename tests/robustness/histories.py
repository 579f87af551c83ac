"""Recorded histories: what clients invoked, when and with which outcome, one line of JSON for each call and each answer.

Lines are appended whole, so that several processes write one file. Times are nanoseconds of the machine's monotonic clock.
An operation without a second line has an outcome that nobody knows: it may have taken effect, or may still do so.
`history_checks` and porcupine (`porcupine/main.go`) judge the same file.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INVOKE, COMPLETE, TOPIC, ASK, FINISHED = "invoke", "complete", "topic", "ask", "finished"
APPEND, READ = "append", "read"
COMMIT, FETCH_OFFSET, FINAL_OFFSETS = "commit", "fetch offset", "final offsets"
TRANSACT, SNAPSHOT, LOOK = "transact", "snapshot", "look"
OK, ABORTED, UNKNOWN = "ok", "aborted", "unknown"
NEVER_NS = 1 << 62


class History:
    """The writer. Every thread and every process may have its own on the same file."""

    def __init__(self, file: Path, client: str = "") -> None:
        self.file = file
        self._client = client
        self._numbers = itertools.count()
        self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.topics: dict[str, str] = {}
        """Name -> id of the topics that have been reported."""

    def _write(self, **facts: Any) -> None:
        os.write(self._fd, json.dumps(facts, separators=(",", ":")).encode() + b"\n")

    def topic(self, name: str, topic_id: str) -> None:
        self.topics[name] = topic_id
        self._write(event=TOPIC, name=name, topic=topic_id)

    def invoke(self, op: str, *, name: str = "", at_ns: int | None = None, **facts: Any) -> str:
        """The id of the operation."""
        operation = name or f"{self._client or os.getpid()}/{next(self._numbers)}"
        self._write(event=INVOKE, op=op, id=operation, at=time.monotonic_ns() if at_ns is None else at_ns, **facts)
        return operation

    def ask(self, operation: str) -> None:
        """From now on the transaction may be committed."""
        self._write(event=ASK, id=operation, at=time.monotonic_ns())

    def complete(self, operation: str, outcome: str = OK, **facts: Any) -> None:
        self._write(event=COMPLETE, id=operation, at=time.monotonic_ns(), outcome=outcome, **facts)

    def finish(self) -> None:
        """All clients have ended in good order: what is not here by now is lost."""
        self._write(event=FINISHED)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(slots=True)
class Operation:
    id: str
    op: str
    invoked_ns: int
    facts: dict[str, Any]
    outcome: str = UNKNOWN
    completed_ns: int = NEVER_NS
    asked_ns: int = NEVER_NS
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def partition(self) -> tuple[str, int]:
        return self.facts["topic"], self.facts["partition"]


@dataclass(slots=True)
class RecordedOperations:
    operations: list[Operation] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Topic id -> name."""
    finished: bool = False

    def of(self, *ops: str) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.op in ops)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def recorded_operations(file: Path) -> RecordedOperations:
    recorded = RecordedOperations()
    pending: dict[str, Operation] = {}
    for line in lines_of(file):
        event = line.pop("event")
        if event == TOPIC:
            recorded.names[line["topic"]] = line["name"]
        elif event == FINISHED:
            recorded.finished = True
        elif event == INVOKE:
            operation = Operation(line.pop("id"), line.pop("op"), line.pop("at"), line)
            pending[operation.id] = operation
            recorded.operations.append(operation)
        elif event == ASK:
            pending[line["id"]].asked_ns = line["at"]
        else:
            operation = pending.pop(line.pop("id"))
            operation.completed_ns, operation.outcome, operation.answer = line.pop("at"), line.pop("outcome"), line
    recorded.operations.sort(key=lambda operation: operation.invoked_ns)
    return recorded
