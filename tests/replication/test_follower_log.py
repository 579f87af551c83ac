"""The log of a follower whose leader's log starts inside a batch."""

from __future__ import annotations

from pathlib import Path

from ottla.env.config import TopicConfig
from ottla.log.checkpoints import write_offsets
from ottla.log.file_names import LOG_START_OFFSET_CHECKPOINT
from ottla.log.log_store import LogStore
from ottla.log.partition_log import PartitionLog
from ottla.model.ids import TopicPartition
from ottla.replication import follower_log
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskStorage
from tests.log.partition_files import NOW, batch

TP = TopicPartition("t", 0)


def loaded(path: Path) -> tuple[LogStore, PartitionLog]:
    """As a start without a clean stop finds them."""
    store = LogStore(DiskStorage(), SystemRandom(), [str(path)])
    store.open_directories()
    store.load(lambda _topic: TopicConfig(), NOW)
    log = store.get(TP)
    assert log is not None
    return store, log


def test_deleted_records_stay_deleted_when_the_first_batch_holds_the_start(tmp_path: Path) -> None:
    """A power cut took the files of the log, and left its start, which an acknowledged DeleteRecords had stored
    (simulator, seed 300).
    """
    (tmp_path / str(TP)).mkdir()
    write_offsets(DiskStorage(), f"{tmp_path}/{LOG_START_OFFSET_CHECKPOINT}", {TP: 3})
    store, log = loaded(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    follower_log.append(log, batch(*[b"value"] * 5, base_offset=0), 0, NOW)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 5)
    store.abandon()
    _, again = loaded(tmp_path)
    assert (again.log_start_offset, again.log_end_offset) == (3, 5)
