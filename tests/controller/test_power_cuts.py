"""Power cuts at every step: what was answered is there afterwards, and nothing is half there.

The disk forgets what was not synced: of each file a random part of the unsynced bytes survives, or garbage in their
place; a new file whose folder was not synced may be gone.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.controller.node import Node, node_properties

from ottla.controller.state import ControllerRequestContext
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.runtime.disk import DiskFile, DiskStorage

V7 = ControllerRequestContext(version=7)


class PowerCutError(Exception):
    """Not an OSError: the machine is gone, nothing of it handles this."""


class Fragile(DiskStorage):
    def __init__(self, seed: int, cut_after: int) -> None:
        self.random = random.Random(seed)
        self.cut_after = cut_after
        self.steps = 0
        self.synced: dict[str, bytes] = {}
        self.unlinked_new: set[str] = set()

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.cut_after:
            raise PowerCutError

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        new = not Path(path).exists()
        opened = super().open(path, create=create)
        if new:
            self.unlinked_new.add(path)
        self.synced.setdefault(path, b"" if new else Path(path).read_bytes())
        return FragileFile(self, path, os.dup(opened.fileno()))

    def write_atomic(self, path: str, data: bytes) -> None:
        self.step()
        super().write_atomic(path, data)
        self.synced[path] = data
        self.sync_dir(str(Path(path).parent))

    def sync_dir(self, path: str) -> None:
        self.unlinked_new = {new for new in self.unlinked_new if str(Path(new).parent) != path}

    def remove(self, path: str) -> None:
        super().remove(path)
        self.synced.pop(path, None)

    def cut(self) -> None:
        """What the disk holds when the power is back."""
        for path, kept in self.synced.items():
            if not Path(path).exists():
                continue
            if path in self.unlinked_new and self.random.random() < 0.5:
                Path(path).unlink()
                continue
            now = Path(path).read_bytes()
            tail = now[len(kept) :] if now.startswith(kept) else b""
            survived = tail[: self.random.randint(0, len(tail))]
            if self.random.random() < 0.3:
                survived = bytes(self.random.randrange(256) for _ in survived)
            Path(path).write_bytes(kept + survived)


class FragileFile(DiskFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: Fragile, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def pwrite(self, data: Any, position: int) -> None:
        self._disk.step()
        super().pwrite(data, position)

    def sync(self) -> None:
        self._disk.step()
        self._disk.synced[self.path] = Path(self.path).read_bytes()


def live_until_the_cut(directory: Path, disk: Fragile, properties: dict[str, str]) -> tuple[set[str], set[str]]:
    """The topics that were answered as created (and never asked to go), and as deleted, before the power went."""
    created: set[str] = set()
    deleted: set[str] = set()
    held: list[tuple[Any, str, bool]] = []
    waiting: list[tuple[Any, Any]] = []

    def later(work: Any, done: Any) -> None:
        waiting.append((work, done))

    node = Node(directory, properties, storage=disk)
    try:
        node.start().join()
        node.runtime.driver._blocking = later
        for i in range(1000):
            held.append((node.runtime.submit(CreateTopicsRequest([CreatableTopic(f"t{i}", 3, 1)]), V7), f"t{i}", True))
            if i % 4 == 3:
                held.append((node.runtime.submit(DeleteTopicsRequest([], [f"t{i - 2}"]), V7), f"t{i - 2}", False))
            while waiting and disk.random.random() < 0.6:
                work, done = waiting.pop(0)
                work()
                done(None)
    except PowerCutError:
        pass
    for answer, name, creates in held:
        if answer.done() and answer.exception is None:
            (created if creates else deleted).add(name)
    return created - {name for _, name, creates in held if not creates}, deleted


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(20))
def test_nothing_answered_is_lost(tmp_path: Path, seed: int, *, dynamic: bool) -> None:
    directory = tmp_path / "data"
    properties = {
        **node_properties(directory, dynamic=dynamic),
        "metadata.log.max.record.bytes.between.snapshots": "3000",
        "metadata.max.retention.bytes": "9000",
        "internal.metadata.log.segment.bytes": "2000",
    }
    Node(directory, properties).format()
    epochs = [0]
    for life in range(3):
        disk = Fragile(seed * 100 + life, cut_after=random.Random(seed * 7 + life).randrange(120))
        now, gone = live_until_the_cut(directory, disk, properties)
        disk.cut()
        created = now
        node = Node(directory, properties).start()
        found = set(node.image.topics_by_name)
        assert created <= found, f"lost in life {life}: {sorted(created - found)}"
        assert not gone & found, f"came back in life {life}: {sorted(gone & found)}"
        assert all(len(topic.partitions) == 3 for topic in node.image.topics_by_name.values()), "half a topic"
        assert node.raft.epoch > epochs[-1]
        epochs.append(node.raft.epoch)
        node.kill()
        names = sorted(node.image.topics_by_name)
        if names:
            # The next life makes the same names again: start it with none of them.
            clean = Node(directory, properties).start().join()
            clean.submit(DeleteTopicsRequest([], names), 5)
            epochs.append(clean.raft.epoch)
            clean.kill()
