"""A disk that refuses one call while compacted segments take their place: no record is lost, then or at the next start.

Before the new segment is whole under its `.swap` name the pass is given up and made again later. After it the segment is
the log's, by whatever name, and the next pass or the next start finishes the exchange. A disk that is full is no more
than that: the directory stays online.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import load_partition_log
from ottla.model.errors import ErrorCode, KafkaError
from ottla.runtime.disk import DiskStorage

from .compaction_history import History, latest, read_records
from .partition_files import NOW, PARTITION, names, reload


class RefusingStorage(DiskStorage):
    """Notes every rename of a segment's file and sync of its folder, and refuses the n-th."""

    __slots__ = ("calls", "refused")

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refused = 0

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if len(self.calls) == self.refused:
            raise OSError(errno.ENOSPC, "injected", call)

    def rename(self, source: str, target: str) -> None:
        if Path(source).exists():
            self._note(Path(target).name.partition(".")[2])
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self._note("sync_dir")
        super().sync_dir(path)


def lived_in(where: Path) -> tuple[History, RefusingStorage]:
    storage = RefusingStorage()
    history = History(where, storage=storage)
    for number in range(60):
        history.append((b"%d" % (number * number % 13), b"%d" % number))
        if number % 10 == 9:
            history.roll()
    storage.calls.clear()
    return history, storage


def calls_of_a_pass(where: Path) -> list[str]:
    """Of its exchange: the checkpoint behind it is written over again by the next pass."""
    history, storage = lived_in(where)
    history.compact()
    return storage.calls[: storage.calls.index("sync_dir") + 1]


def test_no_call_that_fails_loses_a_record(tmp_path: Path) -> None:
    calls = calls_of_a_pass(tmp_path / "whole")
    assert {call for call in calls if call.endswith(".swap")} == {"log.swap", "index.swap", "timeindex.swap"}
    assert {"log.deleted", "log", "index", "sync_dir"} <= set(calls)
    for number, call in enumerate(calls, 1):
        history, storage = lived_in(tmp_path / str(number))
        storage.refused = number
        cleaner = history.cleaner()
        with pytest.raises(KafkaError) as refused:
            history.compact(cleaner)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR, call
        assert not history.log.log_dir.offline
        assert latest(read_records(history.log)) == history.live, call
        found = copied(history.log, tmp_path / f"{number}-found")
        assert latest(read_records(found)) == history.live, call
        assert names(found, ".cleaned", ".swap", ".deleted") == []
        history.append((b"more", b"%d" % number))
        history.roll()
        assert history.compact(cleaner) is not None, call
        assert latest(read_records(history.log)) == history.live, call
        assert names(history.log, ".cleaned", ".swap") == []
        assert latest(read_records(reload(history.log, clean=False))) == history.live, call


def copied(log: PartitionLog, where: Path) -> PartitionLog:
    """As the next start finds it, after a crash at this moment."""
    shutil.copytree(log.log_dir.path, where)
    return load_partition_log(
        LogDirectory(DiskStorage(), str(where)), f"{where}/{PARTITION}", PARTITION, log.config, now_ms=NOW, clean=False
    )
