"""A disk that is full or broken: nothing acknowledged is lost, nothing refused is kept, the rest goes on."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.env.config import TopicConfig
from ottla.log.log_directory import LogDirectory
from ottla.model.errors import ErrorCode, KafkaError

from .partition_files import NOW, FailingStorage, append, batch, new_log, read_all, reload

CONFIG = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=700, index_interval_bytes=100)


def refuses(log, value: bytes = b"lost", sequence: int | None = None) -> None:  # type: ignore[no-untyped-def]
    facts = {} if sequence is None else {"producer_id": 1, "epoch": 0, "sequence": sequence}
    with pytest.raises(KafkaError) as refused:
        append(log, value, **facts)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("victim", [".log", ".snapshot", "leader-epoch-checkpoint", "index"])
def test_a_full_disk_refuses_and_then_goes_on(tmp_path: Path, victim: str) -> None:
    storage = FailingStorage()
    log = new_log(tmp_path, CONFIG, storage)
    kept: list[tuple[int, bytes | None]] = []
    codes: set[ErrorCode] = set()
    for number in range(60):
        value = b"%d" % number
        if number % 7:
            storage.failure = lambda path: victim in path
        epoch = number // 10
        try:
            offset = append(log, value, leader_epoch=epoch, producer_id=1, epoch=0, sequence=len(kept))
            kept.append((offset, value))
        except KafkaError as error:
            codes.add(error.code)
        storage.failure = None
        assert not log.log_dir.offline
        assert log.log_end_offset == len(kept)
        assert log.size_bytes == sum(Path(segment.path(".log")).stat().st_size for segment in log.segments)
    assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert read_all(log) == kept
    again = reload(log, clean=False)
    assert read_all(again) == kept
    assert again.producers.active()[0].last_sequence == len(kept) - 1
    log.close()
    assert read_all(reload(log, clean=True)) == kept


def test_half_a_batch_of_a_full_disk_is_cut_off(tmp_path: Path) -> None:
    storage = FailingStorage()
    log = new_log(tmp_path, storage=storage)
    append(log, b"kept")
    size = log.size_bytes
    storage.failure = lambda path: path.endswith(".log")
    refuses(log)
    assert Path(log.active_segment.path(".log")).stat().st_size == size
    storage.failure = None
    assert append(log, b"next") == 1


def test_a_broken_disk_takes_its_directory_offline(tmp_path: Path) -> None:
    storage = FailingStorage()
    storage.errno = errno.EIO
    failed: list[LogDirectory] = []
    log = new_log(tmp_path, storage=storage)
    log.log_dir.on_failed = failed.append
    append(log, b"kept")
    storage.failure = lambda path: path.endswith(".log")
    refuses(log)
    storage.failure = None
    assert failed == [log.log_dir]
    refuses(log)
    for call in (
        lambda: log.read(0, 100),
        lambda: log.truncate_to(0, NOW),
        lambda: log.roll(NOW),
        log.prepare_flush,
        lambda: log.offset_for_timestamp(0),
        lambda: log.advance_log_start_offset(1),
        lambda: log.append_as_follower(batch(b"x", base_offset=1, leader_epoch=0), now_ms=NOW),
    ):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close()
    assert failed == [log.log_dir]
    assert read_all(reload(log, clean=False)) == [(0, b"kept")]


def test_a_failed_sync_is_never_retried(tmp_path: Path) -> None:
    storage = FailingStorage()
    log = new_log(tmp_path, storage=storage)
    append(log, b"x")
    storage.failing_sync = True
    with pytest.raises(KafkaError):
        log.flush(NOW)
    assert log.log_dir.offline
    assert log.recovery_point == 0


def test_flush_settings(tmp_path: Path) -> None:
    log = new_log(tmp_path, TopicConfig(flush_messages=3, flush_ms=1000))
    results = [log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=NOW) for _ in range(3)]
    assert [result.flush_due for result in results] == [False, False, True]
    assert log.flush_due(NOW)
    log.flush(NOW)
    assert log.recovery_point == 3
    assert not log.flush_due(NOW + 5000)
    result = log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=NOW)
    assert not result.flush_due
    assert not log.flush_due(NOW + 999)
    assert log.flush_due(NOW + 1000)
    assert log.prepare_flush(2) is None
