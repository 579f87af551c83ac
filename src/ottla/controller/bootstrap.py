"""The first records of a cluster: `bootstrap.checkpoint`, and the records of a controller that becomes active."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.controller.elr import elr_safety_records
from ottla.controller.state import ControllerState
from ottla.env.seams import Storage
from ottla.metadata.features import (
    ELR_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    TRANSACTIONS_SINCE,
    default_levels,
)
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    decode_frame,
    encode_frame,
)
from ottla.protocol.primitives import Message
from ottla.raft.snapshots import decode_snapshot, encode_snapshot

FILE_NAME = "bootstrap.checkpoint"


def bootstrap_records(metadata_version: int, levels: dict[str, int]) -> list[Message]:
    """metadata.version first, then every other feature above 0, by name."""
    other_levels = [FeatureLevelRecord(name, level) for name, level in sorted(levels.items()) if level > 0]
    return [FeatureLevelRecord(METADATA_VERSION, metadata_version), *other_levels]


def write_bootstrap(storage: Storage, log_dir: str, records: Iterable[Message], now_ms: int) -> None:
    frames = [encode_frame(record, LATEST_METADATA_VERSION) for record in records]
    data = encode_snapshot(frames, epoch=0, last_contained_timestamp=0, now_ms=now_ms)
    storage.write_atomic(f"{log_dir}/{FILE_NAME}", data)


def read_bootstrap(storage: Storage, log_dir: str) -> list[Message]:
    """The records of the file, or this release's defaults when there is none."""
    path = f"{log_dir}/{FILE_NAME}"
    if not storage.exists(path):
        return bootstrap_records(LATEST_METADATA_VERSION, default_levels(LATEST_METADATA_VERSION))
    return [decode_frame(frame) for frame in decode_snapshot(storage.read_bytes(path), path).frames]


def activation_records(state: ControllerState, bootstrap: list[Message]) -> list[Message]:
    """The records that prepare the log for this controller; empty if none are needed. An open transaction is aborted
    first.
    """
    image = state.image
    records: list[Message] = []
    if image.transaction is not None:
        records.append(AbortTransactionRecord("Controller failover"))
    if not image.empty:
        return records + (elr_safety_records(state, dict(state.cluster_config())) if image.elr_enabled else [])
    levels = {record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)}
    first = [*bootstrap]
    if levels.get(ELR_VERSION, 0) > 0:
        first += elr_safety_records(state, {})
    if levels.get(METADATA_VERSION, 0) < TRANSACTIONS_SINCE:
        return [*records, *first]
    return [*records, BeginTransactionRecord("Bootstrap records"), *first, EndTransactionRecord()]
