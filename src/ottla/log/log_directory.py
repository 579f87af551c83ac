"""One of a node's `log.dirs`: what its partitions share, and the place where it goes offline.

Any OSError on a partition's files comes here. A full disk is the producer's error only; every other failure takes the
directory offline for good, and the node keeps serving the others.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Collection, Iterable

from ottla.env.logging import get_logger
from ottla.env.seams import RandomSource, Storage
from ottla.log.open_files import OpenFiles
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, TimestampMs, Uuid

_log = get_logger(__name__)
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LogDirectory:
    __slots__ = (
        "_deletions", "cordoned", "directory_id", "offline", "on_failed", "open_files", "path", "random", "storage",
        "uncleanable",
    )  # fmt: skip

    def __init__(
        self,
        storage: Storage,
        path: str,
        *,
        random: RandomSource | None = None,
        open_files: OpenFiles | None = None,
        directory_id: Uuid = ZERO_UUID,
        on_failed: Callable[[LogDirectory], None] | None = None,
    ) -> None:
        self.storage = storage
        self.path = path
        self.random = random
        self.open_files = open_files or OpenFiles()
        self.directory_id = directory_id
        self.on_failed = on_failed
        self.offline = False
        self.cordoned = False
        """Gets no new partitions while there are others (cordoned.log.dirs)."""
        self.uncleanable: set[str] = set()
        """Folders of the partitions that compaction has given up on: something in them cannot be read."""
        self._deletions: deque[tuple[TimestampMs, str]] = deque()

    def storage_error(self, error: OSError) -> KafkaError:
        """The refusal that an OSError becomes; takes the directory offline unless the disk is merely full, or the file's
        key was destroyed, which says nothing about the disk.
        """
        if error.errno in _DISK_FULL:
            _log.warning("disk.filled", directory=self.path, error=str(error))
        elif error.errno == errno.ENOKEY:
            _log.warning("key.destroyed", error=str(error))
        else:
            self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Disk error in log directory {self.path}: {error}")

    def fail(self, error: Exception) -> None:
        if self.offline:
            return
        self.offline = True
        self._deletions.clear()
        _log.error("directory.failed", directory=self.path, error=str(error))
        if self.on_failed is not None:
            self.on_failed(self)

    def check_online(self) -> None:
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory {self.path} is offline")

    def delete_later(self, paths: list[str], due_ms: TimestampMs) -> None:
        """Files that were taken out of the log (renamed `.deleted`): readers may still be sending from them."""
        self._deletions.extend((due_ms, path) for path in paths)

    def remove_due_files(self, now_ms: TimestampMs) -> int:
        """Remove what waited long enough (`file.delete.delay.ms`); returns how many files went."""
        removed = 0
        try:
            for _ in range(len(self._deletions)):
                due_ms, path = self._deletions.popleft()
                if due_ms <= now_ms:
                    self.storage.remove(path)
                    removed += 1
                else:
                    self._deletions.append((due_ms, path))
        except OSError as error:
            self.fail(error)
        return removed


def cordon(directories: Iterable[LogDirectory], paths: Collection[str]) -> bool:
    """`paths`, or with "*" all, get no new partitions while there are others (KIP-1066); whether that is news."""
    changed = False
    for directory in directories:
        cordoned = "*" in paths or directory.path in paths
        changed = changed or cordoned != directory.cordoned
        directory.cordoned = cordoned
    return changed
