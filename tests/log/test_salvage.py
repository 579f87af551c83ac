"""Damage to what was whole on disk: only what is damaged suffers, whatever stands before and behind it is kept."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.env.config import TopicConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.transaction_index import read_aborted
from ottla.log.validation import AppendOrigin
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.records import build_end_txn_marker, crc_matches, iterate_batches, iterate_records
from ottla.runtime.disk import DiskStorage

from .partition_files import NOW, append, new_log, read_all, reload

CONFIG = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=700, index_interval_bytes=150)
BATCHES = 40


def filled(path: Path) -> PartitionLog:
    log = new_log(path, CONFIG)
    for number in range(BATCHES):
        append(log, b"%d" % number, producer_id=3, epoch=0, sequence=number, timestamp=NOW + number)
    log.close()
    log.forget()
    return log


def log_file(log: PartitionLog, number: int) -> Path:
    return Path(log.segments[number].path(".log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def offsets_that_can_be_read(log: PartitionLog) -> list[int]:
    """As a consumer gets them that seeks past what it cannot read."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = log.read(offset, 1, min_one_batch=True).read()
            header = next((header for _, header in iterate_batches(data)), None)
        except KafkaError:
            header = None
        if header is None or not crc_matches(data, 0, header.size) or header.base_offset != offset:
            offset += 1
            continue
        found += [record.offset for record in iterate_records(data, 0)]
        offset = header.last_offset + 1
    return found


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_lost_index_takes_nothing_with_it(tmp_path: Path, suffix: str) -> None:
    """One segment is looked at again: a batch that is damaged in a later one, or in this one, ends nothing."""
    log = filled(tmp_path)
    assert len(log.segments) > 3
    Path(log.segments[0].path(suffix)).unlink()
    flip(log_file(log, 0), log.segments[0].size - 3)
    flip(log_file(log, 2), log.segments[2].size - 3)
    again = reload(log, clean=True, recovery_point=BATCHES)
    assert again.log_end_offset == BATCHES
    assert [segment.size for segment in again.segments] == [segment.size for segment in log.segments]
    assert again.producers.active()[0].last_sequence == BATCHES - 1


def test_a_segment_that_lost_its_end_takes_nothing_with_it(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = log_file(log, 1)
    path.write_bytes(path.read_bytes()[:200])
    again = reload(log, clean=True, recovery_point=BATCHES)
    lost = len(log.segments[1:2]) and range(log.segments[1].base_offset, log.segments[2].base_offset)
    assert again.log_end_offset == BATCHES
    kept = offsets_that_can_be_read(again)
    assert set(range(BATCHES)) - set(kept) <= set(lost)
    assert log.segments[2].base_offset in kept


@pytest.mark.parametrize("at", [16, 8])
def test_batches_behind_a_damaged_one_are_found_again(tmp_path: Path, at: int) -> None:
    """Magic or length of a batch in the last segment, after a clean stop: Kafka does not start at all then."""
    log = filled(tmp_path)
    last = log.active_segment
    positions = [position for position, _ in last.walk()]
    assert len(positions) > 2
    log.forget()
    flip(log_file(log, -1), positions[1] + at)
    again = reload(log, clean=True, recovery_point=BATCHES)
    assert again.log_end_offset == BATCHES
    assert offsets_that_can_be_read(again) == [n for n in range(BATCHES) if n != last.base_offset + 1]
    assert append(again, b"next", producer_id=3, epoch=0, sequence=BATCHES) == BATCHES
    with pytest.raises(KafkaError) as refused:
        again.read(last.base_offset + 1, 10, min_one_batch=True)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("noise", [bytes(1), bytes(4096), bytes([2]) * 300, b"\xff" * 100])
def test_noise_at_the_end_is_cut_before_anything_is_put_behind_it(tmp_path: Path, noise: bytes) -> None:
    log = filled(tmp_path)
    with log_file(log, -1).open("ab") as file:
        file.write(noise)
    again = reload(log, clean=True, recovery_point=BATCHES)
    assert again.size_bytes == log.size_bytes
    assert append(again, b"next", producer_id=3, epoch=0, sequence=BATCHES) == BATCHES
    again.close()
    assert [offset for offset, _ in read_all(reload(again, clean=True))] == list(range(BATCHES + 1))


def test_an_index_that_points_elsewhere_hides_nothing(tmp_path: Path) -> None:
    """Bits of an entry in the middle: its length and its last entry are right, so that no look at the start finds it."""
    log = filled(tmp_path)
    index = Path(log.segments[0].path(".index"))
    entries = bytearray(index.read_bytes())
    assert len(entries) == 16
    for damage in (entries[-4:], b"\x00\x00\x00\x55"):  # a later batch, and the middle of one
        entries[4:8] = damage
        index.write_bytes(entries)
        again = reload(log, clean=True, recovery_point=BATCHES)
        for offset in range(log.segments[1].base_offset):
            data = again.read(offset, 1, min_one_batch=True).read()
            assert next(iterate_batches(data))[1].base_offset == offset


def with_aborts(path: Path) -> PartitionLog:
    log = new_log(path, TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=900, index_interval_bytes=150))
    for number in range(12):
        append(log, b"%d" % number, producer_id=number % 2, epoch=0, sequence=number // 2 * 2, transactional=True)
        append(log, b"%d" % number, producer_id=number % 2, epoch=0, sequence=number // 2 * 2 + 1, transactional=True)
        marker = build_end_txn_marker(
            commit=number % 3 == 0, coordinator_epoch=0, timestamp=NOW, producer_id=number % 2, producer_epoch=0
        )
        log.append_as_leader(marker, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
        log.advance_high_watermark(log.log_end_offset)
    log.close()
    log.forget()
    return log


@pytest.mark.parametrize("damage", ["emptied", "cut", "noise", "zeros", "version"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_transaction_index_is_rebuilt(tmp_path: Path, damage: str, clean: bool) -> None:
    log = with_aborts(tmp_path)
    assert len(log.segments) > 2
    paths = [Path(segment.path(".txnindex")) for segment in log.segments]
    before = [read_aborted(DiskStorage(), str(path)) for path in paths]
    victim = next(path for path in paths if path.exists())
    data = victim.read_bytes()
    victim.write_bytes(
        {
            "emptied": b"",
            "cut": data[:-20],
            "noise": data + b"\xff" * 34,
            "zeros": data + bytes(34),
            "version": b"\x00\x07" + data[2:],
        }[damage]
    )
    again = reload(log, clean=clean, recovery_point=log.log_end_offset)
    assert [read_aborted(DiskStorage(), str(path)) for path in paths] == before
    assert again.log_end_offset == log.log_end_offset


def test_lost_epochs_are_told_by_the_batches_and_nothing_is_cut(tmp_path: Path) -> None:
    log = new_log(tmp_path, CONFIG)
    for number in range(BATCHES):
        append(log, b"%d" % number, leader_epoch=number // 7)
    log.close()
    log.forget()
    flip(log_file(log, 1), log.segments[1].size - 2)
    Path(log.directory, "leader-epoch-checkpoint").write_bytes(b"0\nthree\n")
    again = reload(log, clean=True, recovery_point=BATCHES)
    assert again.epochs.entries == log.epochs.entries
    assert again.log_end_offset == BATCHES
    assert len(again.segments) == len(log.segments)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 32))
def test_any_damage_after_a_clean_stop_costs_the_batches_it_hit(tmp_path: Path, seed: int) -> None:
    """Some bytes of any segment and any lost indexes; every batch that has none of those bytes is there."""
    rng = random.Random(seed)
    log = filled(tmp_path / str(seed))
    hit: set[int] = set()
    number = rng.randrange(len(log.segments))
    path, segment = log_file(log, number), log.segments[number]
    batches = [(position, header) for position, header in segment.walk()]
    log.forget()
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice([1, 4, 60, 300]))
    data[start:end] = bytes(byte ^ rng.randint(1, 255) for byte in data[start:end])
    path.write_bytes(data)
    for position, header in batches:
        if position < end and start < position + header.size:
            hit.add(header.base_offset)
            if start < position + 27:
                # Its offsets may be wrong, and the base offset has no checksum: it may stand for any that follow it.
                hit.update(range(header.base_offset, batches[-1][1].next_offset))
    for other in log.segments:
        if rng.random() < 0.3:
            Path(other.path(rng.choice([".index", ".timeindex"]))).unlink()
    again = reload(log, clean=True, recovery_point=BATCHES)
    kept = set(offsets_that_can_be_read(again))
    assert set(range(BATCHES)) - kept <= hit
    behind = max(set(range(BATCHES)) - hit) + 1
    assert behind <= again.log_end_offset <= BATCHES
