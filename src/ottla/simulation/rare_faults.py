"""Faults of one directory, of clocks, of links between two brokers, of bits and of old metadata.

They run beside `Faults`, in a mixture of their own for each seed. A flipped bit hits one broker at a time, while all
replicas are in sync, and only bytes that a CRC covers; the operator repairs the bit later.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.file_names import LOG_SUFFIX
from ottla.protocol.records import HEADER_BYTES, parse_header
from ottla.simulation.node import LOG_DIR

if TYPE_CHECKING:
    from ottla.simulation.cluster import SimulatedCluster
    from ottla.simulation.disk import FakeFile
    from ottla.simulation.faults import Faults
    from ottla.simulation.whole_node import WholeNode

OFFSETS_TOPIC = "__consumer_offsets"
SHARE = 0.7
"""Of the seeds of whole nodes that have such faults at all."""
LARGEST_JUMP_MS = 600_000
"""Far below every retention by time: a jump deletes nothing that an operator wants."""


class _Flip(NamedTuple):
    node: WholeNode
    file: FakeFile
    position: int
    mask: int
    damaged: int


class RareFaults:
    def __init__(self, cluster: SimulatedCluster, faults: Faults, end_ms: float) -> None:
        self._cluster = cluster
        self._faults = faults
        self._world = cluster.world
        self._end_ms = end_ms
        self._dice = random.Random(cluster.world.seed * 47 + 3)  # noqa: S311 - a simulation must be repeatable
        self._brokers = [node for node in cluster.whole if node.spec.partitions]
        self._flips: list[_Flip] = []
        self.count: dict[str, int] = {}
        self._kinds: list[Callable[[], bool]] = [
            self.fail_a_directory, self.fill_a_directory, self.fail_one_sync, self.hang_a_directory, self.flip_a_bit,
            self.jump_a_clock, self.cut_one_way, self.slow_a_link, self.restore_old_metadata, self.cut_off_a_coordinator,
        ]  # fmt: skip

    def start(self) -> None:
        if self._brokers and self._dice.random() < SHARE:
            self._kinds = self._dice.sample(self._kinds, self._dice.randint(2, 5))
            self._pause_ms = self._dice.choice([400.0, 1_000.0])
            self._world.call_later(self._dice.uniform(2_500, 4_000), self._next)

    def _next(self) -> None:
        if self._world.now_ms >= self._end_ms:
            return
        kind = self._dice.choice(self._kinds)
        if kind():
            self.count[kind.__name__] = self.count.get(kind.__name__, 0) + 1
            self._world.note(lambda: f"fault: {kind.__name__}")
        self._world.call_later(self._dice.expovariate(1 / self._pause_ms), self._next)

    def heal(self) -> None:
        for node in self._brokers:
            node.disk.heal()
        self._cluster.network.lag_ms.clear()
        self._repair(len(self._flips))

    def _broker(self) -> WholeNode:
        return self._dice.choice(self._brokers)

    # ------------------------------------------------------------------------------------------------------- directories

    def _folder(self) -> str:
        return self._dice.choice(self._cluster.shape.composition.folders)

    def _for_a_while(self, folders: set[str], folder: str) -> bool:
        folders.add(folder)
        self._world.call_later(self._dice.uniform(200, 3_000), lambda: folders.discard(folder))
        return True

    def fail_a_directory(self) -> bool:
        return self._for_a_while(self._broker().disk.failing_folders, self._folder())

    def fill_a_directory(self) -> bool:
        return self._for_a_while(self._broker().disk.full_folders, self._folder())

    def fail_one_sync(self) -> bool:
        return self._for_a_while(self._broker().disk.failing_once, self._folder())

    def hang_a_directory(self) -> bool:
        self._broker().disk.hanging[self._folder()] = self._world.now_ms + self._dice.uniform(300, 4_000)
        return True

    # -------------------------------------------------------------------------------------------------------------- bits

    def flip_a_bit(self) -> bool:
        """In the records of a committed batch of an ordinary topic."""
        node = self._broker()
        if self._flips or node.replicas is None or not self._faults.in_sync():
            return False
        places = [place for file in self._segments(node) for place in _places(file)]
        if not places:
            return False
        file, low, high = self._dice.choice(places)
        position, mask = self._dice.randrange(low, high), 1 << self._dice.randrange(8)
        damaged = file.data[position] ^ mask
        _put(file, position, damaged)
        self._flips.append(_Flip(node, file, position, mask, damaged))
        self._cluster.lost(node.node_id, False)
        self._world.call_later(self._dice.uniform(500, 5_000), lambda: self._repair(1))
        return True

    def _segments(self, node: WholeNode) -> list[FakeFile]:
        broker = node.process.broker if node.process is not None else None
        logs = broker.logs.online_logs() if broker is not None else ()
        folders = {
            log.directory
            for log in logs
            if log.topic_partition.topic[0] == "t" and log.high_watermark >= log.log_end_offset
        }
        return [
            file
            for path, file in node.disk.files.items()
            if path.endswith(LOG_SUFFIX) and path.rpartition("/")[0] in folders
        ]

    def _repair(self, count: int) -> None:
        """The newest first: two flips may hit one byte."""
        for flip in reversed(self._flips[:count]):
            data = flip.file.data
            if flip.position < len(data) and data[flip.position] == flip.damaged:
                _put(flip.file, flip.position, flip.damaged ^ flip.mask)
        del self._flips[:count]

    # -------------------------------------------------------------------------------------------------- clocks and links

    def jump_a_clock(self) -> bool:
        clock = self._dice.choice(self._cluster.whole).clock
        clock.skew_ms += self._dice.choice([-1, 1]) * self._dice.choice([500, 5_000, LARGEST_JUMP_MS])
        return True

    def _link(self) -> tuple[int, int] | None:
        if len(self._brokers) < 2:
            return None
        a, b = self._dice.sample([node.node_id for node in self._brokers], 2)
        return a, b

    def cut_one_way(self) -> bool:
        link = self._link()
        if link is None:
            return False
        self._break({link}, self._dice.uniform(500, 5_000))
        return True

    def slow_a_link(self) -> bool:
        link = self._link()
        if link is None:
            return False
        lag_ms = self._cluster.network.lag_ms
        lag_ms[link] = self._dice.choice([50.0, 400.0, 1_200.0])

        def recover() -> None:
            lag_ms.pop(link, None)

        self._world.call_later(self._dice.uniform(500, 5_000), recover)
        return True

    def cut_off_a_coordinator(self) -> bool:
        """Clients reach the coordinator of groups, and no other node does."""
        image = self._cluster.clients.image
        topic = image.topics_by_name.get(OFFSETS_TOPIC) if image is not None else None
        leaders = sorted({p.leader for p in topic.partitions.values() if p.leader >= 0}) if topic is not None else []
        if not leaders:
            return False
        leader = self._dice.choice(leaders)
        others = [node.node_id for node in self._cluster.whole if node.node_id != leader]
        self._break(
            {link for other in others for link in ((leader, other), (other, leader))}, self._dice.uniform(3_000, 6_000)
        )
        return True

    def _break(self, links: set[tuple[int, int]], duration_ms: float) -> None:
        broken = self._cluster.network.broken
        broken |= links
        self._world.call_later(duration_ms, lambda: broken.difference_update(links))

    # ---------------------------------------------------------------------------------------------------------- metadata

    def restore_old_metadata(self) -> bool:
        """The metadata of a broker comes back from a copy that was made a while ago, as from a backup."""
        node = self._broker()
        if not node.up or node.spec.config.controller:
            return False
        head = LOG_DIR + "/"
        copy = {path: bytes(file.data) for path, file in node.disk.files.items() if path.startswith(head)}
        self._world.call_later(self._dice.uniform(500, 4_000), lambda: self._restore(node, copy))
        return True

    def _restore(self, node: WholeNode, copy: dict[str, bytes]) -> None:
        if not node.up or self._world.now_ms >= self._end_ms:
            return
        node.kill(power=False)
        node.disk.replace_folder(LOG_DIR, copy)
        self._cluster.invariants.wiped(node.node_id)
        self._faults.start_later(node, self._dice.uniform(5, 1_000))


def _places(file: FakeFile) -> list[tuple[FakeFile, int, int]]:
    """Where the records of each batch are."""
    places, at, data = [], 0, bytes(file.data)
    while at + HEADER_BYTES < len(data):
        size = parse_header(data, at).size
        if at + size > len(data):
            break
        places.append((file, at + HEADER_BYTES, at + size))
        at += size
    return places


def _put(file: FakeFile, position: int, value: int) -> None:
    file.data[position] = value
    if position < len(file.synced):
        file.synced = file.synced[:position] + bytes([value]) + file.synced[position + 1 :]
