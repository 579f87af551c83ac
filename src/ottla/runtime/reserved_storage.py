"""A Storage with a reserve of file descriptors, for the metadata log: a node cannot run without it.

A process can run out of descriptors whatever the limits of connections and segments are, and so can the whole system.
A data directory then refuses the request. The metadata log cannot refuse a vote or a record that is decided, so it
opens its file with a descriptor of the reserve. The reserve is filled again when descriptors are free.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import ParamSpec, TypeVar

from ottla.env.logging import get_logger
from ottla.env.seams import File, Storage
from ottla.log.log_directory import lacks_descriptors

_log = get_logger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

RESERVE = 4
"""A thread writes a snapshot while the loop rolls a segment. Each needs two descriptors: its file and its folder."""


class ReservedStorage:
    """Passes calls through. A call that fails for lack of descriptors is repeated with those of the reserve."""

    def __init__(self, inner: Storage, count: int = RESERVE) -> None:
        self._inner = inner
        self._count = count
        self._lock = Lock()
        self._reserve: list[int] = []
        for name in ("exists", "is_dir", "size", "modified_ms", "make_dirs", "rename", "remove", "remove_tree"):
            setattr(self, name, self._with_reserve(getattr(inner, name)))
        for name in ("read_bytes", "write_atomic", "list_dir", "sync_dir", "disk_space", "lock"):
            setattr(self, name, self._with_reserve(getattr(inner, name)))
        is_plain = getattr(inner, "is_plain", None)
        self.is_plain: Callable[[str], bool] | None = None if is_plain is None else self._with_reserve(is_plain)
        self._fill()

    exists: Callable[[str], bool]
    is_dir: Callable[[str], bool]
    size: Callable[[str], int]
    modified_ms: Callable[[str], int]
    list_dir: Callable[[str], Sequence[str]]
    make_dirs: Callable[[str], None]
    read_bytes: Callable[[str], bytes]
    write_atomic: Callable[[str, bytes], None]
    rename: Callable[[str, str], None]
    remove: Callable[[str], None]
    remove_tree: Callable[[str], None]
    sync_dir: Callable[[str], None]
    disk_space: Callable[[str], tuple[int, int]]
    lock: Callable[[str], Callable[[], None] | None]

    def open(self, path: str, *, create: bool = False) -> File:
        return self._with_reserve(self._inner.open)(path, create=create)

    def close(self) -> None:
        """Close the reserve: the node stops."""
        with self._lock:
            self._count = 0
            self._release()

    def _with_reserve(self, call: Callable[_P, _T]) -> Callable[_P, _T]:
        def reserved(*arguments: _P.args, **options: _P.kwargs) -> _T:
            try:
                if len(self._reserve) < self._count:
                    self._fill()
                return call(*arguments, **options)
            except OSError as error:
                if not lacks_descriptors(error):
                    raise
                _log.warning("descriptors.exhausted", reserve=len(self._reserve), error=str(error))
            with self._lock:
                self._release()
                return call(*arguments, **options)

        return reserved

    def _fill(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            while len(self._reserve) < self._count:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _release(self) -> None:
        while self._reserve:
            os.close(self._reserve.pop())

    def __del__(self) -> None:
        self._release()
