"""A tree of files in memory that forgets at a power cut what was not synced. `dropping_disk` mounts such a tree.

Bytes are durable when their file was synced, names when their directory was synced. Names are journaled: a sync of a
directory makes all earlier changes of names durable as well, and a power cut takes back the last changes first.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PAGE = 4096
ROOT_ID = 1


@dataclass(eq=False, slots=True)
class Node:
    """A file or a directory."""

    id: int
    mode: int
    owner: tuple[int, int]
    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    """The bytes that a power cut leaves."""
    dirty: list[tuple[int, int]] = field(default_factory=list)
    """Ranges that were written since the last sync."""
    entries: dict[str, Node] = field(default_factory=dict)
    modified_ns: int = field(default_factory=time.time_ns)
    lookups: int = 0

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def write(self, position: int, data: bytes) -> None:
        end, size = position + len(data), len(self.data)
        if position > size:
            self.data.extend(bytes(position - size))
        self.data[position:end] = data
        self._touch(min(position, size), end)

    def truncate(self, size: int) -> None:
        before = len(self.data)
        if size < before:
            del self.data[size:]
        else:
            self.data.extend(bytes(size - before))
        self._touch(min(size, before), max(size, before))

    def _touch(self, start: int, end: int) -> None:
        self.modified_ns = time.time_ns()
        if self.dirty and self.dirty[-1][1] == start:
            self.dirty[-1] = (self.dirty[-1][0], end)
        else:
            self.dirty.append((start, end))

    def sync(self) -> None:
        size = len(self.data)
        del self.synced[size:]
        self.synced.extend(bytes(size - len(self.synced)))
        for start, end in self.dirty:
            self.synced[start:end] = self.data[start:end]
        self.dirty.clear()

    def lose(self, chance: random.Random | None) -> int:
        """Back to the synced bytes; with `chance` some of the pages were written all the same. The bytes that are lost."""
        before = bytes(self.data)
        kept = bytearray(self.synced)
        for start, end in self.dirty if chance is not None else ():
            for page in range(start - start % PAGE, min(end, len(before)), PAGE):
                if chance is not None and chance.random() < 0.5:
                    low, high = max(page, start), min(page + PAGE, end, len(before))
                    kept.extend(bytes(max(0, low - len(kept))))
                    kept[low:high] = before[low:high]
        self.data, self.synced = kept, bytearray(kept)
        self.dirty.clear()
        return sum(a != b for a, b in zip(before, kept, strict=False)) + abs(len(before) - len(kept))


@dataclass(frozen=True, slots=True)
class NameChange:
    directories: tuple[Node, ...]
    undo: Callable[[], object]


class DroppingTree:
    def __init__(self) -> None:
        owner = (os.getuid(), os.getgid())
        self.root = Node(ROOT_ID, stat.S_IFDIR | 0o755, owner)
        self.nodes: dict[int, Node] = {ROOT_ID: self.root}
        self._next_id = ROOT_ID + 1
        self._changes: list[NameChange] = []

    def child(self, parent: Node, name: str) -> Node:
        node = parent.entries.get(name)
        if node is None:
            raise OSError(errno.ENOENT, name)
        self.nodes[node.id] = node
        return node

    def create(self, parent: Node, name: str, mode: int, owner: tuple[int, int]) -> Node:
        if name in parent.entries:
            raise OSError(errno.EEXIST, name)
        node = Node(self._next_id, mode, owner)
        self._next_id += 1
        self.nodes[node.id] = parent.entries[name] = node
        self._changed((parent,), lambda: parent.entries.pop(name))
        return node

    def remove(self, parent: Node, name: str, *, directory: bool) -> None:
        node = self.child(parent, name)
        if node.is_directory != directory:
            raise OSError(errno.ENOTDIR if directory else errno.EISDIR, name)
        if node.entries:
            raise OSError(errno.ENOTEMPTY, name)
        del parent.entries[name]
        self._changed((parent,), lambda: parent.entries.update({name: node}))

    def rename(self, parent: Node, name: str, target: Node, new_name: str) -> None:
        node, replaced = self.child(parent, name), target.entries.get(new_name)
        if replaced is not None and replaced.entries:
            raise OSError(errno.ENOTEMPTY, new_name)
        del parent.entries[name]
        target.entries[new_name] = node

        def undo() -> None:
            del target.entries[new_name]
            if replaced is not None:
                target.entries[new_name] = replaced
            parent.entries[name] = node

        self._changed((parent, target), undo)

    def _changed(self, directories: tuple[Node, ...], undo: Callable[[], object]) -> None:
        for directory in directories:
            directory.modified_ns = time.time_ns()
        self._changes.append(NameChange(directories, undo))

    def sync_directory(self, directory: Node) -> None:
        last = max((i for i, change in enumerate(self._changes) if directory in change.directories), default=-1)
        del self._changes[: last + 1]

    def cut(self, seed: int) -> tuple[int, int]:
        """The power is gone: bytes that are lost, and changes of names that are taken back."""
        chance = random.Random(seed)
        count = len(self._changes) if chance.random() < 0.5 else chance.randrange(len(self._changes) + 1)
        for change in reversed(self._changes[len(self._changes) - count :]):
            change.undo()
        self._changes.clear()
        in_any_order = chance.random() < 0.4
        lost = sum(node.lose(chance if in_any_order else None) for node in self._files(self.root))
        return lost, count

    def _files(self, directory: Node) -> list[Node]:
        files = []
        for node in directory.entries.values():
            files += self._files(node) if node.is_directory else [node]
        return files
