"""The state of a partition's idempotent and transactional producers.

`check` judges a batch and changes nothing; `update` and `update_marker` change state after the bytes are in the file.
Per producer the last five batches are kept, so that a retry is answered with the offsets of its first append. An
unknown producer may start at any sequence: its records may have been deleted (Kafka's rule, KIP-360). Transactions:
`ongoing` ones hold the last stable offset back; completed ones stay in `unreplicated` until the high watermark has
passed their marker.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.results import ActiveProducer
from ottla.log.validation import AppendOrigin
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId, TimestampMs
from ottla.protocol.records import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader, ControlType, EndTxnMarker

BATCHES_KEPT = 5
NO_OFFSET: Offset = -1
NO_SEQUENCE = -1
NO_COORDINATOR_EPOCH = -1
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000
_INT32_MAX = 0x7FFFFFFF
_INT16_MAX = 0x7FFF
_IN_TRANSACTION = TRANSACTIONAL_MASK | CONTROL_MASK
_new_tuple = tuple.__new__
_EPOCH_BUMP_VERSION = 2
"""Transaction version 2 bumps the producer epoch at the end of every transaction (KIP-890)."""


class BatchMetadata(NamedTuple):
    """One appended batch of a producer."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: TimestampMs

    @property
    def first_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(
        self,
        epoch: ProducerEpoch,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: TimestampMs = NO_TIMESTAMP,
        txn_first_offset: Offset = NO_OFFSET,
        batches: list[BatchMetadata] | None = None,
    ) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        self.batches = batches if batches is not None else []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class CompletedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool


class VerificationGuard:
    """A pending request to the coordinator whether a producer's transaction includes the partition (KIP-890).

    The object itself is the guard: the following append must pass this same object.
    """

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "producer_id", "supports_epoch_bump")

    def __init__(
        self,
        producer_id: ProducerId,
        created_ms: TimestampMs,
        sequence: int,
        epoch: ProducerEpoch,
        *,
        supports_epoch_bump: bool,
    ) -> None:
        self.producer_id = producer_id
        self.created_ms = created_ms
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def seen(self, sequence: int, epoch: ProducerEpoch) -> None:
        """Remember the lowest sequence, so that no later sequence is written before a retry of the lowest."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


class ProducerState:
    __slots__ = (
        "end_offset", "expiration_ms", "ongoing", "producers", "unreplicated", "verification_enabled", "verifications"
    )  # fmt: skip

    def __init__(self, end_offset: Offset = 0, expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS) -> None:
        self.producers: dict[ProducerId, ProducerEntry] = {}
        self.ongoing: dict[Offset, ProducerId] = {}
        """First offset -> producer; offsets only rise, so the first key is the oldest transaction."""
        self.unreplicated: dict[Offset, Offset] = {}
        """First offset -> offset of the marker, above the high watermark."""
        self.verifications: dict[ProducerId, VerificationGuard] | None = None
        self.end_offset = end_offset
        """The state reflects the log up to here."""
        self.expiration_ms = expiration_ms
        """`producer.id.expiration.ms`"""
        self.verification_enabled = False
        """`transaction.partition.verification.enable`: a transaction's first batch must show its guard."""

    def replace_by(self, other: ProducerState) -> None:
        """Become what `other` is: the log was truncated, or a copy takes the place of its original. The settings stay."""
        self.producers = other.producers
        self.ongoing = other.ongoing
        self.unreplicated = other.unreplicated
        self.verifications = other.verifications
        self.end_offset = other.end_offset

    # ------------------------------------------------------------------------------------------------ judging

    def follows(self, header: BatchHeader) -> bool:
        """Whether a plain batch simply continues its producer's sequence: the usual case, with nothing to check."""
        entry = self.producers.get(header.producer_id)
        if entry is None or not entry.batches or header.attributes & _IN_TRANSACTION:
            return False
        return (
            header.base_sequence == entry.batches[-1][0] + 1
            and header.producer_epoch == entry.epoch
            and entry.txn_first_offset < 0
            and not self.verifications
        )

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The earlier append of the same batch, when it is among the producer's last five."""
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch[0] == last_sequence and batch[2] == header.last_offset_delta:
                return batch
        return None

    def check(self, header: BatchHeader, origin: AppendOrigin, verification_guard: VerificationGuard | None) -> None:
        """Raise what Kafka answers to a data batch that must not be appended."""
        entry = self.producers.get(header.producer_id)
        transactional = header.attributes & TRANSACTIONAL_MASK
        verification = self.verifications.get(header.producer_id) if self.verifications else None
        current = NO_PRODUCER_EPOCH if entry is None else entry.epoch
        if header.producer_epoch < current:
            raise _invalid_epoch(header.producer_id, header.producer_epoch, current)
        if (
            transactional
            and self.verification_enabled
            and not _is_ongoing(entry, header.producer_epoch)
            and (verification is None or verification is not verification_guard)
        ):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        if origin is AppendOrigin.CLIENT:
            _check_sequence(header, entry, verification)
        if entry is not None and entry.txn_first_offset >= 0 and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected a transactional write from producer {header.producer_id}, whose transaction is open",
            )

    def check_marker(self, header: BatchHeader, marker: EndTxnMarker, transaction_version: int) -> None:
        """Raise for a marker of an older producer epoch or from a deposed transaction coordinator."""
        entry = self.producers.get(header.producer_id)
        epoch = header.producer_epoch
        if entry is None:
            if epoch < NO_PRODUCER_EPOCH:
                raise _invalid_epoch(header.producer_id, epoch, NO_PRODUCER_EPOCH)
            return
        if transaction_version >= _EPOCH_BUMP_VERSION and epoch == entry.epoch:
            # The coordinator's retry of a marker that was written already; or the last epoch, which cannot be bumped.
            if entry.txn_first_offset >= 0 and epoch != _INT16_MAX:
                raise _invalid_epoch(header.producer_id, epoch, entry.epoch)
        elif epoch < entry.epoch:
            raise _invalid_epoch(header.producer_id, epoch, entry.epoch)
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {marker.coordinator_epoch} for producer {header.producer_id} is older than "
                f"{entry.coordinator_epoch}",
            )

    # ------------------------------------------------------------------------------------------------ changing

    def update(self, header: BatchHeader, base_offset: Offset) -> None:
        """A data batch now stands in the log at `base_offset`."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(header.producer_epoch)
        batches = entry.batches
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            batches.clear()
        elif len(batches) == BATCHES_KEPT:
            del batches[0]
        delta = header.last_offset_delta
        timestamp = header.max_timestamp
        last_sequence = (header.base_sequence + delta) & _INT32_MAX if header.base_sequence >= 0 else NO_SEQUENCE
        batches.append(_new_tuple(BatchMetadata, (last_sequence, base_offset + delta, delta, timestamp)))
        entry.last_timestamp = timestamp
        if header.attributes & TRANSACTIONAL_MASK:
            if entry.txn_first_offset < 0:
                entry.txn_first_offset = base_offset
                self.ongoing[base_offset] = producer_id
            if self.verifications:
                self.verifications.pop(producer_id, None)

    def update_marker(
        self, header: BatchHeader, marker: EndTxnMarker, offset: Offset, timestamp: TimestampMs
    ) -> CompletedTxn | None:
        """A transaction marker now stands at `offset`; the transaction that it completes, if it had any data."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(header.producer_epoch)
        if self.verifications:
            self.verifications.pop(producer_id, None)
        first_offset = entry.txn_first_offset
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = NO_OFFSET
        if first_offset < 0:
            return None
        return CompletedTxn(producer_id, first_offset, offset, marker.control_type is ControlType.ABORT)

    def complete(self, completed: CompletedTxn) -> Offset:
        """Close the transaction; returns the last stable offset right after it, for the transaction index."""
        self.ongoing.pop(completed.first_offset, None)
        self.unreplicated[completed.first_offset] = completed.last_offset
        return next(iter(self.ongoing), completed.last_offset + 1)

    def load(self, producer_id: ProducerId, entry: ProducerEntry) -> None:
        """An entry of a snapshot; call `sort_ongoing` after the last."""
        self.producers[producer_id] = entry
        if entry.txn_first_offset >= 0:
            self.ongoing[entry.txn_first_offset] = producer_id

    def sort_ongoing(self) -> None:
        self.ongoing = dict(sorted(self.ongoing.items()))

    def replicated_up_to(self, offset: Offset) -> None:
        """The high watermark (or the log start) has moved to `offset`: markers below it are decided for good."""
        if self.unreplicated:
            self.unreplicated = {first: last for first, last in self.unreplicated.items() if last >= offset}

    def first_unstable_offset(self) -> Offset:
        """The first offset of the oldest transaction that is open or not yet replicated; -1 without one."""
        first = next(iter(self.ongoing), NO_OFFSET)
        if self.unreplicated:
            oldest = min(self.unreplicated)
            return oldest if first < 0 else min(first, oldest)
        return first

    def active(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(
                producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for producer_id, entry in self.producers.items()
        ]

    def remove_expired(self, now_ms: TimestampMs) -> int:
        """Forget producers that wrote nothing for `producer.id.expiration.ms` and have no open transaction."""
        expiration_ms = self.expiration_ms
        expired = [
            producer_id for producer_id, entry in self.producers.items() if is_expired(entry, now_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        if self.verifications:
            self.verifications = {
                producer_id: verification
                for producer_id, verification in self.verifications.items()
                if now_ms - verification.created_ms < expiration_ms
            }
        return len(expired)

    def start_verification(
        self,
        producer_id: ProducerId,
        sequence: int,
        epoch: ProducerEpoch,
        now_ms: TimestampMs,
        *,
        supports_epoch_bump: bool = False,
    ) -> VerificationGuard | None:
        """A guard for the append to come; None when the producer's transaction is open here already."""
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise _invalid_epoch(producer_id, epoch, entry.epoch)
        if _is_ongoing(entry, epoch):
            return None
        if self.verifications is None:
            self.verifications = {}
        verification = self.verifications.get(producer_id)
        if verification is None:
            verification = VerificationGuard(
                producer_id, now_ms, sequence, epoch, supports_epoch_bump=supports_epoch_bump
            )
            self.verifications[producer_id] = verification
        else:
            verification.seen(sequence, epoch)
        return verification

    def drop_verification(self, producer_id: ProducerId, verification_guard: VerificationGuard) -> None:
        """Remove the guard of a producer id that the coordinator does not have: no append will use it, and clients can
        invent any number of ids.
        """
        if self.verifications and self.verifications.get(producer_id) is verification_guard:
            del self.verifications[producer_id]


def _is_ongoing(entry: ProducerEntry | None, epoch: ProducerEpoch) -> bool:
    return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch


def is_expired(entry: ProducerEntry, now_ms: TimestampMs, expiration_ms: int) -> bool:
    return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms


def _invalid_epoch(producer_id: ProducerId, epoch: ProducerEpoch, current: ProducerEpoch) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {producer_id} is older than the last seen epoch {current}",
    )


def _check_sequence(header: BatchHeader, entry: ProducerEntry | None, verification: VerificationGuard | None) -> None:
    sequence = header.base_sequence
    if verification is not None:
        first_batch = entry is None or not entry.batches
        if verification.supports_epoch_bump and sequence != 0 and first_batch:
            raise _out_of_order(header, "0 (first of a transactional producer)")
        if sequence > verification.lowest_sequence:
            raise _out_of_order(header, f"{verification.lowest_sequence} (earliest seen)")
    if entry is None:
        return
    if entry.epoch != header.producer_epoch:
        if sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
            raise _out_of_order(header, "0 (new producer epoch)")
        return
    if entry.epoch == NO_PRODUCER_EPOCH:
        return
    last = entry.last_sequence
    if sequence != last + 1 and not (sequence == 0 and last == _INT32_MAX):
        raise _out_of_order(header, f"{last} (current end)")


def _out_of_order(header: BatchHeader, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence} (incoming), {expected}",
    )
