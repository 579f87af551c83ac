"""The state of one share-partition: a value, made of a snapshot and the updates behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.coordinator.share.batches import UNKNOWN_START_OFFSET, StateBatch, combine
from ottla.coordinator.share.records import (
    SharePartitionKey,
    SnapshotRecord,
    UpdateRecord,
    snapshot_batches,
    update_batches,
)
from ottla.protocol.generated.share_snapshot_value import ShareSnapshotValue
from ottla.protocol.generated.share_update_value import ShareUpdateValue

NO_EPOCH = -1
UNKNOWN_COUNT = -1
_FIRST_LEADER_EPOCH = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    create_timestamp_ms: int
    write_timestamp_ms: int
    updates: int = 0
    """Since the last snapshot."""

    @classmethod
    def from_snapshot(cls, value: ShareSnapshotValue) -> ShareState:
        return cls(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            batches=_batches(value),
            create_timestamp_ms=value.create_timestamp,
            write_timestamp_ms=value.write_timestamp,
        )

    def updated(self, value: ShareUpdateValue) -> ShareState:
        start = self.start_offset if value.start_offset == UNKNOWN_START_OFFSET else value.start_offset
        return replace(
            self,
            leader_epoch=self.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch,
            start_offset=start,
            delivery_complete_count=value.delivery_complete_count,
            batches=combine(self.batches, _batches(value), start),
            updates=self.updates + 1,
        )

    # As records

    def snapshot(self, key: SharePartitionKey) -> SnapshotRecord:
        value = ShareSnapshotValue(
            self.snapshot_epoch,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self.create_timestamp_ms,
            self.write_timestamp_ms,
            snapshot_batches(self.batches),
        )
        return SnapshotRecord(key, value)

    def update(
        self, key: SharePartitionKey, start_offset: int, complete_count: int, batches: tuple[StateBatch, ...]
    ) -> UpdateRecord:
        """Only the new batches; the leader epoch stays until a read with a newer leader epoch."""
        return UpdateRecord(
            key,
            ShareUpdateValue(
                self.snapshot_epoch,
                self.leader_epoch,
                start_offset,
                complete_count,
                update_batches(combine((), batches, start_offset)),
            ),
        )


def initial_state(state_epoch: int, start_offset: int, snapshot_epoch: int, now_ms: int) -> ShareState:
    return ShareState(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=_FIRST_LEADER_EPOCH,
        start_offset=start_offset,
        delivery_complete_count=UNKNOWN_COUNT if start_offset == UNKNOWN_START_OFFSET else 0,
        batches=(),
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )


def _batches(value: ShareSnapshotValue | ShareUpdateValue) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(b.first_offset, b.last_offset, b.delivery_count, b.delivery_state) for b in value.state_batches
    )
