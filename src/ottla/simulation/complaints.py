"""Errors that the product only logs: each is a broken promise, unless a fault of the simulation explains the event.

A supervisor keeps a task alive after a bug, and the dispatcher answers the request: the cluster goes on, and no other
check sees the bug.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.env import logging
from ottla.simulation.invariants import Violation

OPERATING_ERRORS: Mapping[str, str] = {
    "metadata_log.failed": "the disk of the metadata log is full or fails; the process ends",
    "directory.failed": "the directory fails; its replicas go offline",
    "duty.failed": "a directory fails under the duty, which runs again",
    "cleaning.failed": "a directory fails under compaction, which runs again",
    "compaction.failed": "a directory is full or fails, or a segment is damaged",
    "move.failed": "one of the two directories is full or fails",
    "shard.load_failed": "the directory of the coordinator's partition fails",
    "partition.taken_offline": "the directory of the replica is offline when its topic changes",
    "partition.not_deleted": "the directory of the replica is full or fails; the next start removes the replica",
    "follower.failed": "the directory of the follower fails",
    "snapshot.failed": "the disk of the metadata is full or fails",
    "registration.lost": "the controller has fenced this broker; the broker registers again",
    "transaction.not_completed": "a newer epoch of the producer has taken the transaction over",
}
"""Events of faults, with the fault. The same event with a traceback (`exc_info`) is a bug all the same."""


class Complaints:
    def __init__(self) -> None:
        self.violation: Violation | None = None
        self.count: dict[str, int] = {}

    def on_error(self, logger: str, event: str, facts: dict[str, object]) -> None:
        self.count[event] = self.count.get(event, 0) + 1
        if self.violation is None and (event not in OPERATING_ERRORS or "exc_info" in facts):
            cause = facts.get("exc_info", facts.get("error", facts.get("reason", "")))
            self.violation = Violation(f"{logger} only logs {event}: {cause!r}")

    @contextmanager
    def heard(self) -> Iterator[None]:
        with logging.observed(self.on_error):
            yield
