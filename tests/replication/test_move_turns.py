"""Many moves at once (a directory is emptied): the loop, and with it the node's heartbeats, waits for one step at a time."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.model.ids import TopicPartition
from ottla.runtime.disk import DiskFile, DiskStorage
from tests.coordinator.virtual_world import VirtualTime
from tests.replication.test_replication import Result, started
from tests.replication.virtual_cluster import VirtualCluster, VirtualNode

PARTITIONS = 12
SYNC_MS = 15.0
RECORDS = 6


class SlowClock:
    """The cluster's time plus the duration of this node's syncs."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.synced_ms = 0.0

    def time_ms(self) -> int:
        return self._time.time_ms()

    def monotonic_ms(self) -> float:
        return self._time.monotonic_ms() + self.synced_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowClock]:
    clock = SlowClock(VirtualTime())

    def slow(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def costly(*arguments: Any) -> Any:
            clock.synced_ms += SYNC_MS
            return plain(*arguments)

        monkeypatch.setattr(owner, name, costly)

    slow(DiskFile, "sync")
    slow(DiskStorage, "sync_dir")
    slow(DiskStorage, "write_atomic")
    return clock


def node_with_topic(tmp_path: Path, clock: SlowClock) -> VirtualNode:
    cluster = started(tmp_path, log_dirs=2, nodes=1)
    cluster.create_topic("t", PARTITIONS, 1)
    [node] = cluster.nodes.values()
    cluster.run_until(lambda: len(node.replicas.by_name.get("t", ())) == PARTITIONS)
    cluster.run_until(lambda: all(partition.is_leader for partition in node.replicas))
    for index in range(PARTITIONS):
        for number in range(RECORDS):
            assert Result(node.produce("t", b"%d" % number, partition=index)).acked
    cluster.time.advance(5_000)
    clock._time = cluster.time
    node.replicas.moves._clock = clock
    return node


def move_all(node: VirtualNode) -> int:
    """To the other directory; how many are under way now."""
    for partition in list(node.replicas):
        target = next(path for path in node.paths if path != partition.log.log_dir.path)
        node.replicas.moves.begin(partition, target)
    return len(list(node.replicas.moves))


def test_no_more_than_one_promotion_a_turn_on_a_slow_disk(tmp_path: Path, clock: SlowClock) -> None:
    """The controller accepts all assignments in a single response."""
    node = node_with_topic(tmp_path, clock)
    moves = node.replicas.moves
    before = clock.synced_ms
    assert move_all(node) == PARTITIONS
    assert clock.synced_ms == before, "the request that begins the moves waits for no sync"
    promotions, turns = _watched(node)
    cluster: VirtualCluster = node.cluster
    cluster.run_until(lambda: not list(moves))
    assert len(promotions) == PARTITIONS
    assert max(promotions.count(turn) for turn in promotions) == 1
    assert 0 not in promotions, "a promotion outside of the turns"
    assert len(turns) > PARTITIONS
    cluster.time.advance(2_000)
    topic = cluster.state.image.topics_by_name["t"]
    for partition in node.replicas:
        log = partition.log
        assert log.log_end_offset == log.high_watermark == RECORDS
        directory_id = topic.partitions[partition.topic_partition.partition].directory(node.id)
        assert directory_id == log.log_dir.directory_id


def _watched(node: VirtualNode) -> tuple[list[int], list[int]]:
    """The number of the turn of each promotion (0: outside of one), and the turns."""
    moves, log_moves = node.replicas.moves, node.logs.moves
    promotions: list[int] = []
    turns: list[int] = []
    advance, promote = moves.advance, log_moves.promote
    under_way = [False]

    def turn(max_bytes: int) -> bool:
        turns.append(len(turns) + 1)
        under_way[0] = True
        try:
            return advance(max_bytes)
        finally:
            under_way[0] = False

    def noted(*arguments: Any) -> Any:
        promotions.append(turns[-1] if under_way[0] else 0)
        return promote(*arguments)

    moves.advance = turn  # type: ignore[method-assign]
    log_moves.promote = noted  # type: ignore[method-assign]
    return promotions, turns


def test_a_directory_that_fails_in_a_turn_ends_its_other_moves_once(
    tmp_path: Path, clock: SlowClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moves that the turn still has before it have ended when it comes to them (simulator, seed 28)."""
    node = node_with_topic(tmp_path, clock)
    assert move_all(node) == PARTITIONS
    moves, log_moves = node.replicas.moves, node.logs.moves

    def copy(partition: TopicPartition, _max_bytes: int, _now_ms: int) -> bool:
        raise log_moves.future(partition).log_dir.storage_error(OSError(errno.EIO, "the disk fails"))

    monkeypatch.setattr(log_moves, "copy", copy)
    assert not moves.advance(1 << 20)
    assert not list(moves), "every move has its source or its copy in the failed directory"
    assert sum(log_dir.offline for log_dir in node.logs.directories) == 1


def test_a_turn_copies_no_more_of_all_moves_than_it_may(tmp_path: Path, clock: SlowClock) -> None:
    node = node_with_topic(tmp_path, clock)
    batch = next(iter(node.replicas)).log.size_bytes // RECORDS
    move_all(node)
    moves, log_moves = node.replicas.moves, node.logs.moves
    for _ in range(PARTITIONS):
        before = log_moves.copied_bytes
        assert moves.advance(2 * batch)
        assert log_moves.copied_bytes - before == 2 * batch
    copied = [future.log_end_offset for future in log_moves.futures()]
    assert copied == [2] * PARTITIONS, "each has had its turn"
    assert moves.advance(0), "there is more to do"
    assert [future.log_end_offset for future in log_moves.futures()] == copied
