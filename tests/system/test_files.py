"""Syncing, files in memory and birth times, on a system that has the call and on one that lacks it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from ottla.connect.sources.identity import identity
from ottla.runtime.disk import DiskStorage
from ottla.system import files
from ottla.system.files import birth_ns, memory_file, sync_all, sync_data

F_FULLFSYNC = 51


class Syncs:
    """The calls that a sync makes, in their order; `refusal` is what F_FULLFSYNC answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, full_sync: bool, data_sync: bool) -> None:
        self.calls: list[str] = []
        self.refusal: int | None = None
        monkeypatch.setattr(os, "fsync", lambda _: self.calls.append("fsync"))
        if data_sync:
            monkeypatch.setattr(os, "fdatasync", lambda _: self.calls.append("fdatasync"), raising=False)
        else:
            monkeypatch.delattr(os, "fdatasync", raising=False)
        if full_sync:
            monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
        else:
            monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
        monkeypatch.setattr(fcntl, "fcntl", self._fcntl)

    def _fcntl(self, fd: int, command: int) -> int:
        assert command == F_FULLFSYNC
        self.calls.append("F_FULLFSYNC")
        if self.refusal is not None:
            raise OSError(self.refusal, os.strerror(self.refusal))
        return 0


def test_linux_syncs_data_alone_and_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch, full_sync=False, data_sync=True)
    sync_data(3)
    sync_all(3)
    assert syncs.calls == ["fdatasync", "fsync"]


def test_macos_empties_the_cache_of_the_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch, full_sync=True, data_sync=False)
    sync_data(3)
    sync_all(3)
    assert syncs.calls == ["F_FULLFSYNC", "F_FULLFSYNC"]


@pytest.mark.parametrize("refusal", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_a_full_sync_gets_a_plain_one(monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    syncs = Syncs(monkeypatch, full_sync=True, data_sync=False)
    syncs.refusal = refusal
    sync_data(3)
    assert syncs.calls == ["F_FULLFSYNC", "fsync"]


@pytest.mark.parametrize("refusal", [errno.EIO, errno.ENOSPC])
def test_a_full_sync_that_fails_is_a_failing_disk(monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    """After an EIO a second sync may succeed although the data are lost."""
    syncs = Syncs(monkeypatch, full_sync=True, data_sync=False)
    syncs.refusal = refusal
    with pytest.raises(OSError, match=os.strerror(refusal)):
        sync_data(3)
    assert syncs.calls == ["F_FULLFSYNC"]


def test_neither_call_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch, full_sync=False, data_sync=False)
    sync_data(3)
    assert syncs.calls == ["fsync"]


def test_the_disk_syncs_by_these_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file, a file written whole, and its directory."""
    syncs = Syncs(monkeypatch, full_sync=True, data_sync=False)
    storage = DiskStorage()
    file = storage.open(str(tmp_path / "file"), create=True)
    file.pwrite(b"x", 0)
    file.sync()
    assert syncs.calls == ["F_FULLFSYNC"]
    storage.write_atomic(str(tmp_path / "whole"), b"y")
    assert syncs.calls == ["F_FULLFSYNC"] * 3


def test_a_file_in_memory_is_read_as_often_as_wanted_and_gone_afterwards() -> None:
    with memory_file(b"secret") as path:
        if path is None:
            pytest.skip("this system has no files in memory")
        assert Path(path).read_bytes() == Path(path).read_bytes() == b"secret"
    assert not Path(path).exists()


def test_no_file_in_memory_where_there_is_no_call_or_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, memory_file(b"secret") as path:
        if path is not None:
            patch.setattr(os.path, "exists", lambda _: False)
            with memory_file(b"secret") as hidden:
                assert hidden is None
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with memory_file(b"secret") as path:
        assert path is None


def test_the_birth_time_of_stat_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """macOS has it in `os.stat`; a file that takes the place of another one, and its inode, has a birth time of its own."""

    class Status:
        st_ino = 7
        st_birthtime = 1_700_000_000.5

    monkeypatch.setattr(os, "stat", lambda _: Status)
    assert birth_ns("any") == 1_700_000_000_500_000_000
    assert identity("any") == "7.1700000000500000000"


def test_a_system_without_birth_times_has_the_inode_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "_statx", lambda: None)
    path = tmp_path / "file"
    path.touch()
    if not hasattr(path.stat(), "st_birthtime"):
        assert birth_ns(str(path)) == 0
        assert identity(str(path)) == str(path.stat().st_ino)
