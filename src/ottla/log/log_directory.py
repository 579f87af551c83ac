"""One of a node's `log.dirs`: what its partitions share, and the place where it goes offline.

Every OSError on a partition's files is handled here. A full disk, or a lack of free file descriptors in the process or
system, only refuses the request. Every other failure takes the directory offline until a restart, and the node keeps
serving its other directories.
"""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator

from ottla.env.logging import get_logger
from ottla.env.seams import KeyDestroyedError, RandomSource, Storage
from ottla.log.directory_checkpoints import DirectoryCheckpoints
from ottla.log.open_files import OpenFiles
from ottla.log.removals import Removal
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, TimestampMs, Uuid

_log = get_logger(__name__)
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def lacks_descriptors(error: OSError) -> bool:
    """No file could be opened, here (RLIMIT_NOFILE) or in the whole system: the error is no fault of the disk."""
    return error.errno in _NO_DESCRIPTORS


class LogDirectory:
    __slots__ = (
        "_deletions", "checkpoints", "cordoned", "directory_id", "offline", "on_failed", "open_files", "path", "random",
        "storage",
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
        self.open_files = OpenFiles() if open_files is None else open_files
        self.checkpoints = DirectoryCheckpoints(storage, path)
        self.directory_id = directory_id
        self.on_failed = on_failed
        self.offline = False
        self.cordoned = False
        """The directory gets no new partitions while there are directories that are not cordoned (cordoned.log.dirs).
        """
        self._deletions: deque[tuple[TimestampMs, str]] = deque()

    def storage_error(self, error: OSError) -> KafkaError:
        """The refusal that an OSError becomes. Takes the directory offline unless the disk is full, no descriptor is
        free, or the file's key was destroyed: none of these is a fault of the disk.
        """
        if error.errno in _DISK_FULL:
            _log.warning("disk.filled", directory=self.path, error=str(error))
        elif lacks_descriptors(error):
            _log.warning("descriptors.exhausted", directory=self.path, error=str(error))
        elif isinstance(error, KeyDestroyedError):
            _log.warning("key.destroyed", error=str(error))
        else:
            self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Disk error in log directory {self.path}: {error}")

    @contextlib.contextmanager
    def storage_errors(self) -> Iterator[None]:
        """Turn an OSError of the block into the refusal of `storage_error`."""
        try:
            yield
        except OSError as error:
            raise self.storage_error(error) from error

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

    def check_folder(self, name: str) -> None:
        """Refuse the folder of a new partition when the file system treats its name as equal to the name of an existing
        folder. macOS ignores case: the topics `Orders` and `orders` would write into the same files.
        """
        if not self.storage.exists(f"{self.path}/{name}"):
            return
        names = self.storage.list_dir(self.path)
        other = next((other for other in names if other.lower() == name.lower()), name)
        if name not in names and other != name:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The file system of {self.path} does not distinguish {name} from {other}: delete one of the two topics, or keep "
                "log.dirs on a file system that distinguishes upper and lower case",
            )

    def delete_later(self, paths: list[str], due_ms: TimestampMs) -> None:
        """Files that were taken out of the log (renamed `.deleted`): readers may still be sending from them."""
        self._deletions.extend((due_ms, path) for path in paths)

    def removals(self, now_ms: TimestampMs) -> Iterator[Removal]:
        """What waited long enough (`file.delete.delay.ms`). A file that cannot be removed now is tried again at the next
        turn.
        """
        for _ in range(len(self._deletions)):
            if not self._deletions:
                return  # the directory failed meanwhile
            due_ms, path = self._deletions.popleft()
            if due_ms <= now_ms:
                removal = Removal(self.storage.remove, path)
                yield removal
                if removal.error is None:
                    continue
                self.storage_error(removal.error)
                if self.offline:
                    return
            self._deletions.append((due_ms, path))


def cordon(directories: Iterable[LogDirectory], paths: Collection[str]) -> bool:
    """Cordon `paths`, or all directories for "*" (KIP-1066); returns whether a directory changed."""
    changed = False
    for directory in directories:
        cordoned = "*" in paths or directory.path in paths
        changed = changed or cordoned != directory.cordoned
        directory.cordoned = cordoned
    return changed
