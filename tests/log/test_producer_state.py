"""Idempotence: which batch is a duplicate, which is out of order, what is refused; and the snapshot file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.partition_log import PartitionLog
from ottla.log.producer_snapshots import CorruptSnapshotError, decode_snapshot, encode_snapshot
from ottla.log.producer_state import BatchMetadata, ProducerEntry, ProducerState
from ottla.log.validation import AppendOrigin
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.records import build_end_txn_marker

from .partition_files import NOW, append, batch, new_log, read_all, reload

MAX_SEQUENCE = 0x7FFFFFFF


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return new_log(tmp_path)


def send(log: PartitionLog, sequence: int, *, epoch: int = 0, count: int = 1, producer_id: int = 9) -> tuple[int, bool]:
    data = batch(*[b"x"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)
    result = log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    return result.first_offset, result.duplicate


def refused(log: PartitionLog, sequence: int, *, epoch: int = 0) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(KafkaError) as error:
        send(log, sequence, epoch=epoch)
    assert log.log_end_offset == before
    return error.value.code


def test_in_order(log: PartitionLog) -> None:
    assert send(log, 0, count=3) == (0, False)
    assert send(log, 3) == (3, False)
    assert refused(log, 3 + 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 4) == (4, False)


def test_the_last_five_batches_are_duplicates(log: PartitionLog) -> None:
    for sequence in range(8):
        send(log, sequence)
    for sequence in range(3, 8):
        assert send(log, sequence) == (sequence, True)
    assert refused(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(read_all(log)) == 8


def test_only_an_equal_range_is_a_duplicate(log: PartitionLog) -> None:
    send(log, 0, count=3)
    with pytest.raises(KafkaError) as error:
        send(log, 0, count=2)
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(KafkaError):
        send(log, 1, count=2)


def test_an_unknown_producer_may_start_anywhere(log: PartitionLog) -> None:
    assert send(log, 77) == (0, False)
    assert refused(log, 77 + 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap(log: PartitionLog) -> None:
    assert send(log, MAX_SEQUENCE - 1, count=2) == (0, False)
    assert send(log, 0) == (2, False)
    assert send(log, MAX_SEQUENCE - 1, count=2) == (0, True)


def test_a_batch_across_the_wrap(log: PartitionLog) -> None:
    send(log, MAX_SEQUENCE - 1, count=4)
    assert log.producers.active()[0].last_sequence == 1
    assert send(log, 2) == (4, False)
    assert send(log, MAX_SEQUENCE - 1, count=4) == (0, True)


def test_epochs(log: PartitionLog) -> None:
    send(log, 0, epoch=3)
    assert refused(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=4) == (1, False)
    assert refused(log, 1, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_state_survives_restarts(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(4):
        send(log, sequence)
    crashed = reload(log, clean=False)
    assert send(crashed, 1) == (1, True)
    crashed.close()
    # A snapshot holds one batch per producer: older retries are unknown after a clean restart, as in Kafka.
    clean = reload(crashed, clean=True)
    assert send(clean, 3) == (3, True)
    assert refused(clean, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(clean, 4) == (4, False)


def test_truncation_forgets_what_it_drops(log: PartitionLog) -> None:
    for sequence in range(6):
        send(log, sequence)
    log.truncate_to(3, NOW)
    assert send(log, 2) == (2, True)
    assert send(log, 3) == (3, False)


def marker(log: PartitionLog, *, epoch: int, coordinator_epoch: int = 0, version: int = 0, commit: bool = True) -> None:
    data = build_end_txn_marker(
        commit=commit, coordinator_epoch=coordinator_epoch, timestamp=NOW, producer_id=9, producer_epoch=epoch
    )
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR, transaction_version=version)


def code(call: object, **facts: int) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call(**facts)  # type: ignore[operator]
    return error.value.code


def test_markers_of_deposed_coordinators_and_old_epochs(log: PartitionLog) -> None:
    append(log, b"x", producer_id=9, epoch=5, sequence=0, transactional=True)
    marker(log, epoch=5, coordinator_epoch=3)
    with pytest.raises(KafkaError) as error:
        marker(log, epoch=5, coordinator_epoch=2)
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(KafkaError) as error:
        marker(log, epoch=4, coordinator_epoch=3)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.offsets.first_unstable_offset == 0
    log.advance_high_watermark(log.log_end_offset)
    assert log.offsets.first_unstable_offset == -1


def test_transaction_version_two_demands_a_bumped_epoch(log: PartitionLog) -> None:
    append(log, b"x", producer_id=9, epoch=5, sequence=0, transactional=True)
    with pytest.raises(KafkaError) as error:
        marker(log, epoch=5, version=2)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    marker(log, epoch=6, version=2)
    marker(log, epoch=6, version=2)
    assert refused(log, 1, epoch=5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 0, epoch=6)[1] is False


def test_verification_knows_epochs(log: PartitionLog) -> None:
    """An open transaction of one epoch says nothing of the next; an epoch of the past gets no guard at all."""
    log.producers.verification_enabled = True
    first = log.producers.start_verification(9, 0, 5, NOW)
    assert first is not None
    data = batch(b"x", producer_id=9, epoch=5, sequence=0, transactional=True)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW, verification_guard=first)
    assert log.producers.start_verification(9, 1, 5, NOW) is None
    assert log.producers.start_verification(9, 0, 6, NOW) is not None
    with pytest.raises(KafkaError) as error:
        log.producers.start_verification(9, 0, 4, NOW)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    data = batch(b"y", producer_id=9, epoch=6, sequence=0, transactional=True)
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    assert error.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_guard_that_nothing_will_come_of_is_forgotten(log: PartitionLog) -> None:
    verification_guard = log.producers.start_verification(9, 0, 0, NOW)
    assert verification_guard is not None
    other = log.producers.start_verification(10, 0, 0, NOW)
    assert other is not None
    log.producers.drop_verification(10, verification_guard)
    assert log.producers.verifications == {9: verification_guard, 10: other}
    log.producers.drop_verification(9, verification_guard)
    assert log.producers.verifications == {10: other}


def test_verification_holds_back_higher_sequences(log: PartitionLog) -> None:
    log.producers.verification_enabled = True
    verification_guard = log.producers.start_verification(9, 4, 0, NOW)
    assert log.producers.start_verification(9, 2, 0, NOW) is verification_guard
    data = batch(b"x", producer_id=9, epoch=0, sequence=4, transactional=True)
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW, verification_guard=verification_guard)
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    data = batch(b"x", producer_id=9, epoch=0, sequence=2, transactional=True)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW, verification_guard=verification_guard)
    assert log.producers.remove_expired(NOW + 10**9) == 0


int64 = st.integers(-1, (1 << 63) - 1)
entries = st.builds(
    ProducerEntry,
    st.integers(0, 32767),
    st.integers(-1, MAX_SEQUENCE),
    int64,
    int64,
    st.lists(
        st.builds(
            BatchMetadata,
            st.integers(0, MAX_SEQUENCE),
            st.integers(0, (1 << 63) - 1),
            st.integers(0, MAX_SEQUENCE),
            st.just(0),
        ),
        max_size=1,
    ),
)


@given(st.dictionaries(st.integers(0, (1 << 63) - 1), entries, max_size=5))
def test_snapshots_round_trip(producers: dict[int, ProducerEntry]) -> None:
    state = ProducerState()
    state.producers.update(producers)
    decoded = decode_snapshot(encode_snapshot(state))
    assert list(decoded) == list(producers)
    for producer_id, entry in producers.items():
        found = decoded[producer_id]
        assert (found.epoch, found.coordinator_epoch, found.last_timestamp, found.txn_first_offset) == (
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.txn_first_offset,
        )
        assert [batch[:3] for batch in found.batches] == [batch[:3] for batch in entry.batches]


@given(st.data())
def test_damaged_snapshots_are_refused(data: st.DataObject) -> None:
    state = ProducerState()
    state.producers[4] = ProducerEntry(1, 2, 3, -1, [BatchMetadata(1, 2, 0, 3)])
    good = encode_snapshot(state)
    damaged = bytearray(good)
    at = data.draw(st.integers(0, len(good) - 1))
    if data.draw(st.booleans()):
        damaged[at] ^= data.draw(st.integers(1, 255))
    else:
        del damaged[at:]
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(damaged))
