"""The flush alone: which files a plan syncs, in which order, and when the recovery point moves."""

from __future__ import annotations

import errno

import pytest

from ottla.env.config import TopicConfig
from ottla.log.log_flush import LogFlush

from .log_parts import FOLDER, ROOT, Parts
from .partition_files import NOW


def flush_of(parts: Parts) -> LogFlush:
    return LogFlush(parts.segments, parts.offsets, parts.epochs, parts.snapshots)


def synced(parts: Parts) -> list[str]:
    return sorted(path.rpartition("/")[2] for path, file in parts.disk.files.items() if file.synced)


def test_a_plan_covers_the_segments_their_indexes_and_the_files_beside_them() -> None:
    parts = Parts()
    parts.fill(2)
    flush = flush_of(parts)
    plan = flush.plan(4)
    plan.sync()
    assert synced(parts) == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        f"{2:020d}.log",
        f"{2:020d}.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert parts.disk.operations[-2:] == [f"sync {FOLDER}", f"sync {ROOT}"], "the folder's own name was never synced"
    assert parts.offsets.recovery_point == 0, "the plan alone moves nothing"
    flush.done(plan, NOW)
    assert parts.offsets.recovery_point == 4


def test_the_next_plan_has_only_what_is_new() -> None:
    parts = Parts()
    parts.fill(2)
    flush = flush_of(parts)
    plan = flush.plan(4)
    plan.sync()
    flush.done(plan, NOW)
    parts.disk.operations.clear()
    for file in parts.disk.files.values():
        file.synced = b""
    parts.append(b"more")
    flush.plan(5).sync()
    assert synced(parts) == [f"{2:020d}.log"]
    assert parts.disk.operations == []


def test_a_plan_from_before_a_truncation_proves_nothing() -> None:
    parts = Parts()
    parts.fill(1)
    flush = flush_of(parts)
    plan = flush.plan(2)
    parts.offsets.truncate_to(1)
    flush.done(plan, NOW)
    assert parts.offsets.recovery_point == 0


@pytest.mark.parametrize(("code", "offline"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_failed_sync(code: int, offline: bool) -> None:
    parts = Parts()
    parts.fill(1)
    flush = flush_of(parts)
    flush.plan(2)
    assert not parts.epochs.dirty
    flush.failed(OSError(code, "injected"))
    assert parts.log_dir.offline is offline
    assert parts.epochs.dirty is not offline, "without a descriptor, the next plan has the same files"


def test_due_by_flush_ms() -> None:
    parts = Parts(config=TopicConfig(flush_ms=1000))
    flush = flush_of(parts)
    assert not flush.due(NOW), "nothing to sync"
    parts.append(b"x")
    assert flush.due(NOW)
    flush.last_flushed_ms = NOW
    assert not flush.due(NOW + 999)
    assert flush.due(NOW + 1000)
    assert flush.due(NOW - 600_000), "the wall clock was set back"


def test_the_closing_plan_writes_what_is_only_in_memory() -> None:
    parts = Parts()
    parts.append(b"x", producer_id=7)
    flush = flush_of(parts)
    plan = flush.closing_plan(parts.producers)
    assert plan is not None
    assert parts.names(".snapshot") == [f"{1:020d}.snapshot"]
    plan.sync()
    flush.done(plan, NOW)
    assert flush.closing_plan(parts.producers) is None, "everything is on disk already"


@pytest.mark.parametrize(("end", "bases"), [(3, [0, 2]), (2, [0, 2]), (1, [0]), (0, [0])])
def test_a_log_that_was_cut_is_synced_when_it_closes(end: int, bases: list[int]) -> None:
    """Else a power cut behind the marker of a clean stop brings the cut records back (simulator, seed 294)."""
    parts = Parts()
    parts.fill(2)
    flush = flush_of(parts)
    plan = flush.plan(4)
    plan.sync()
    flush.done(plan, NOW)
    parts.offsets.truncate_to(end)
    parts.segments.truncate_to(end, NOW)
    parts.disk.operations.clear()
    closing = flush.closing_plan(parts.producers)
    assert closing is not None
    closing.sync()
    assert parts.bases == bases
    cut = parts.disk.files[parts.segments.active.path(".log")]
    assert cut.synced == cut.data
    assert f"sync {FOLDER}" in parts.disk.operations, "the names of the segments behind the cut are gone"
    flush.done(closing, NOW)
    assert flush.closing_plan(parts.producers) is None
