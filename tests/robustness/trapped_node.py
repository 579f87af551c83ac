"""A node that ends itself at a chosen step: `python -m tests.robustness.trapped_node server.properties`.

The node is the product's, on the product's disk; only the seam between them counts calls. A trap is a small file beside
the properties: which call, on which path, the how-manieth, before or after the call, and what happens then. The node
writes what it was doing into a second file before it kills or stops itself, so that a test counts what was hit in
flight and not what it meant to hit.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.replication.directories import DirectoryAssignments
from ottla.runtime.disk import DiskFile, DiskStorage
from ottla.server.formatting import storage
from ottla.server.run import run_from_file

if TYPE_CHECKING:
    from typing_extensions import Buffer

KILL, STOP, FAIL = "kill", "stop", "fail"
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    call: str
    """rename, write, make_dirs, remove_tree; assign and assigned for AssignReplicasToDirs and its answer."""
    path: str
    """A regular expression for the path; of a rename for `source -> target`, of an assignment for the partitions."""
    when: str = BEFORE
    count: int = 1
    action: str = KILL


def trap_file(properties: Path) -> Path:
    return properties.with_suffix(".trap")


def sprung_file(properties: Path) -> Path:
    return properties.with_suffix(".sprung")


def arm(properties: Path, trap: Trap) -> None:
    sprung_file(properties).unlink(missing_ok=True)
    whole = properties.with_suffix(".trap.new")
    whole.write_text(json.dumps(asdict(trap)))
    whole.replace(trap_file(properties))


def disarm(properties: Path) -> None:
    trap_file(properties).unlink(missing_ok=True)


def sprung(properties: Path) -> str | None:
    """The step at which the trap caught the node; None while it has not."""
    try:
        return sprung_file(properties).read_text() or None
    except FileNotFoundError:
        return None


class TrapLine:
    """The trap that is set now, read again when its file changes; without a file each call costs one stat."""

    def __init__(self) -> None:
        self._properties: Path | None = None
        self._trap_path = ""
        self._read_at = -1
        self._trap: Trap | None = None
        self._pattern = re.compile("")
        self._left = 0

    def watch(self, properties: Path) -> None:
        self._properties = properties
        self._trap_path = str(trap_file(properties))

    def check(self, call: str, path: str, when: str) -> None:
        try:
            changed = os.stat(self._trap_path).st_mtime_ns  # noqa: PTH116 - once for every write of the node
        except FileNotFoundError:
            return
        if changed != self._read_at:
            self._read(changed)
        trap = self._trap
        if trap is None or trap.call != call or trap.when != when or not self._pattern.search(path):
            return
        self._left -= 1
        if self._left == 0:
            self._spring(trap, f"{when} {call} {path}")

    def _read(self, changed: int) -> None:
        try:
            self._trap = trap = Trap(**json.loads(Path(self._trap_path).read_text()))
        except FileNotFoundError:
            return
        self._read_at, self._pattern, self._left = changed, re.compile(trap.path), trap.count

    def _spring(self, trap: Trap, step: str) -> None:
        if self._properties is None:
            return
        self._trap = None
        disarm(self._properties)
        whole = self._properties.with_suffix(".sprung.new")
        whole.write_text(step)
        whole.replace(sprung_file(self._properties))
        if trap.action == FAIL:
            raise OSError(errno.EIO, "Input/output error", step)
        os.kill(os.getpid(), signal.SIGKILL if trap.action == KILL else signal.SIGSTOP)


LINE = TrapLine()


class TrapFile(DiskFile):
    __slots__ = ()

    def pwrite(self, data: Buffer, position: int) -> None:
        LINE.check("write", self.path, BEFORE)
        super().pwrite(data, position)
        LINE.check("write", self.path, AFTER)


class TrapStorage(DiskStorage):
    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        opened = super().open(path, create=create)
        fd, opened._fd = opened._fd, -1
        return TrapFile(path, fd)

    def write_atomic(self, path: str, data: bytes) -> None:
        LINE.check("write", path, BEFORE)
        super().write_atomic(path, data)
        LINE.check("write", path, AFTER)

    def make_dirs(self, path: str) -> None:
        LINE.check("make_dirs", path, BEFORE)
        super().make_dirs(path)
        LINE.check("make_dirs", path, AFTER)

    def rename(self, source: str, target: str) -> None:
        step = f"{source} -> {target}"
        LINE.check("rename", step, BEFORE)
        super().rename(source, target)
        LINE.check("rename", step, AFTER)

    def remove_tree(self, path: str) -> None:
        LINE.check("remove_tree", path, BEFORE)
        super().remove_tree(path)
        LINE.check("remove_tree", path, AFTER)


def _trap_assignments() -> None:
    """Before AssignReplicasToDirs is sent, and when its answer is there and not yet read."""
    flush, on_response = DirectoryAssignments._flush, DirectoryAssignments._on_response

    def trapped_flush(self: DirectoryAssignments) -> None:
        LINE.check("assign", " ".join(str(partition.topic_partition) for partition in self._pending), BEFORE)
        flush(self)

    def trapped_response(self: DirectoryAssignments, response: Any) -> None:
        LINE.check("assigned", " ".join(str(partition.topic_partition) for partition in self._in_flight), BEFORE)
        on_response(self, response)

    DirectoryAssignments._flush = trapped_flush  # type: ignore[method-assign]
    DirectoryAssignments._on_response = trapped_response  # type: ignore[method-assign]


def main(file: Path) -> int:
    LINE.watch(file)
    storage.DiskStorage = TrapStorage  # type: ignore[misc]
    _trap_assignments()
    return run_from_file(file)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
