"""A follower whose log cannot be cut when its epoch begins: the disk is asked again, and then the follower fetches."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.partition_log import PartitionLog
from ottla.model.errors import KafkaError
from ottla.model.ids import Uuid
from ottla.replication.context import ReplicaContext
from ottla.replication.fetcher import FetcherSettings, ReplicaFetcher
from ottla.runtime.disk import DiskFile, DiskStorage
from tests.log.partition_files import NOW, PARTITION, batch, new_log, read_all


class Disk(DiskStorage):
    def __init__(self) -> None:
        self.full = False

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if self.full:
            raise OSError(errno.EMFILE, "injected")
        return super().open(path, create=create)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def time_ms(self) -> int:
        return NOW

    def monotonic_ms(self) -> float:
        return self.now_ms


def without_epochs(path: Path, disk: Disk) -> PartitionLog:
    """A log whose records have no leader epoch and are not committed: the first fetch must not find them."""
    log = new_log(path, storage=disk)
    log.append_as_follower(batch(b"x", base_offset=0, leader_epoch=-1), now_ms=NOW)
    log.forget()
    return log


def test_a_follower_begins_when_the_disk_lets_it(tmp_path: Path) -> None:
    disk, clock = Disk(), Clock()
    log = without_epochs(tmp_path, disk)
    partition: Any = SimpleNamespace(
        topic_partition=PARTITION, topic_id=Uuid(b"0123456789abcdef"), leader_epoch=3, log=log, isr=[1, 2]
    )
    fetcher = ReplicaFetcher(ReplicaContext(1, clock), 2, FetcherSettings(backoff_ms=1000))
    disk.full = True
    fetcher.add(partition)
    assert fetcher.request() is None, "the follower rests"
    clock.now_ms += 1001
    request = fetcher.request()
    assert request is not None
    assert request.topics[0].partitions[0].fetch_offset == 0
    fetched = batch(b"y", base_offset=0, leader_epoch=3)
    with pytest.raises(KafkaError):
        log.append_as_follower(fetched, now_ms=NOW)
    disk.full = False
    log.append_as_follower(fetched, now_ms=NOW)
    assert read_all(log) == [(0, b"y")]
