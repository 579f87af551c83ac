"""The seam to the outside world: time, disk, randomness and timers, as Protocols.

Logic below `runtime` and `simulation` touches the machine only through these. The real ones live in `ottla.runtime`,
the simulated ones in `ottla.simulation`. All of them are synchronous; nothing here depends on asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Clock(Protocol):
    def time_ms(self) -> int:
        """Wall-clock milliseconds since 1970; may jump."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back; for timeouts and intervals."""
        ...


class RandomSource(Protocol):
    def token_bytes(self, length: int) -> bytes: ...

    def uniform(self, low: float, high: float) -> float: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` after what is being handled now."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...


class KeyDestroyedError(OSError):
    """The file is encrypted and its key was destroyed. This is no failure of the disk: the log directory stays online."""


class File(Protocol):
    """An open file. Positions are explicit; there is no cursor. OSError means that the log directory is failing."""

    path: str

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; shorter only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data` or raise OSError; after an error the bytes past `position` are undefined."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """On return every earlier pwrite survives a power cut (fdatasync, on macOS F_FULLFSYNC)."""
        ...

    def fileno(self) -> int:
        """For sendfile; a simulated file raises io.UnsupportedOperation and readers fall back to pread."""
        ...

    def close(self) -> None: ...


class Storage(Protocol):
    """A file system. Paths are plain strings with '/'."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write beside, sync, rename over `path`, sync the directory: a reader sees the old bytes or the new."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_dir(self, path: str) -> Sequence[str]:
        """The names in a directory, sorted."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is not there."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def disk_space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume that holds `path`."""
        ...

    def lock(self, path: str) -> Callable[[], None] | None:
        """Take an exclusive lock on `path` (created when missing) and return its release; None when it is taken."""
        ...
