"""The real disk, as a file system that keeps the case of a name but ignores it when it looks for one (APFS on macOS)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.runtime.disk import DiskFile, DiskStorage


class IgnoringCase(DiskStorage):
    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return super().open(found(path), create=create)

    def read_bytes(self, path: str) -> bytes:
        return super().read_bytes(found(path))

    def write_atomic(self, path: str, data: bytes) -> None:
        super().write_atomic(found(path), data)

    def exists(self, path: str) -> bool:
        return super().exists(found(path))

    def is_dir(self, path: str) -> bool:
        return super().is_dir(found(path))

    def size(self, path: str) -> int:
        return super().size(found(path))

    def modified_ms(self, path: str) -> int:
        return super().modified_ms(found(path))

    def list_dir(self, path: str) -> Sequence[str]:
        return super().list_dir(found(path))

    def make_dirs(self, path: str) -> None:
        super().make_dirs(found(path))

    def rename(self, source: str, target: str) -> None:
        super().rename(found(source), found(target))

    def remove(self, path: str) -> None:
        super().remove(found(path))

    def remove_tree(self, path: str) -> None:
        super().remove_tree(found(path))

    def sync_dir(self, path: str) -> None:
        super().sync_dir(found(path))

    def lock(self, path: str) -> Callable[[], None] | None:
        return super().lock(found(path))


def found(path: str) -> str:
    """The path with the names that are on the disk; a name that is not there stays as it is."""
    place = Path(path).anchor or "."
    for name in Path(path).parts[1 if Path(path).anchor else 0 :]:
        exact = Path(place) / name
        if not exact.exists() and Path(place).is_dir():
            exact = next((other for other in Path(place).iterdir() if other.name.lower() == name.lower()), exact)
        place = str(exact)
    return place
