"""Throughput of writing, with Kafka's own ProducerPerformance in the shared client JVM.

Rates and CPU are per payload byte before compression. Batches are 256 KB, as a producer tuned for throughput has them; two
rows keep the client's defaults (16 KB).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial

from bench.bed import Bed, MismatchError, cpu_of, require_written
from bench.loads import Case, Measured
from bench.measure import CPU_PER_GB, RATE
from bench.plan import Sizes
from bench.servers import Server

NAME = "produce"
TUNED = ("batch.size=262144", "linger.ms=5", "buffer.memory=67108864")
_WARM_UP_PASSES = 8
_STILL_WARMING = 0.9
_SUMMARY = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    record_bytes: int
    partitions: int
    codec: str = "none"
    acks: str = "all"
    tuned: bool = True

    @property
    def label(self) -> str:
        size = "1 KB" if self.record_bytes == 1000 else f"{self.record_bytes} B"
        count = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{size}, {count}, {self.codec}, acks={self.acks}" + ("" if self.tuned else ", client's defaults")


SHAPES = [
    Shape(record_bytes=size, partitions=partitions, codec=codec, acks=acks)
    for size in (100, 1000)
    for partitions in (1, 6)
    for codec in ("none", "lz4")
    for acks in ("1", "all")
]
SHAPES += [
    Shape(record_bytes=100, partitions=1, tuned=False),
    Shape(record_bytes=1000, partitions=6, tuned=False),
]

_WARM_UP = (
    Shape(record_bytes=1000, partitions=6, codec="none", acks="all"),
    Shape(record_bytes=1000, partitions=1, codec="lz4", acks="1"),
    Shape(record_bytes=100, partitions=6, codec="lz4", acks="all"),
    Shape(record_bytes=100, partitions=1, codec="none", acks="1"),
)


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(load=NAME, label=shape.label, quantities=(RATE, CPU_PER_GB), run=partial(_measure, sizes, shape))
        for shape in SHAPES
    ]


def _measure(sizes: Sizes, shape: Shape, bed: Bed, role: str) -> Measured:
    server = bed.shared(role)
    warm_up(bed, role, server)
    size = sizes.produce_bytes if shape.record_bytes >= 1000 else sizes.produce_bytes // 2
    count = size // shape.record_bytes
    with bed.topic(server, shape.partitions) as topic:
        bed.settle(free_memory=True)
        with cpu_of(server) as cpu:
            rate = write(bed, server, topic, shape, count)
        require_written(server, topic, shape.partitions, count)
    payload = count * shape.record_bytes
    return {RATE: rate * shape.record_bytes / 1e6, CPU_PER_GB: cpu.seconds / (payload / 1e9)}


def write(bed: Bed, server: Server, topic: str, shape: Shape, count: int) -> float:
    """Write `count` records with the Java producer; records per second."""
    settings = [f"acks={shape.acks}", f"compression.type={shape.codec}", *(TUNED if shape.tuned else ())]
    printed = bed.java.tool(
        "ProducerPerformance",
        *("--bootstrap-server", server.bootstrap, "--topic", topic, "--num-records", count),
        *("--throughput", -1, "--record-size", shape.record_bytes, "--command-property", *settings),
        timeout_s=bed.sizes.timeout_s,
    )
    # The last line sums up the whole run; lines before it report intervals.
    found = _SUMMARY.findall(printed)
    if not found or int(found[-1][0]) != count:
        raise MismatchError(f"ProducerPerformance did not send {count} records: {printed[-300:].strip()}")
    return float(found[-1][1])


def warm_up(bed: Bed, role: str, server: Server) -> None:
    """Once per server: every path is taken until a pass costs the broker no less than the one before it.

    A JVM compiles for many seconds of work: after three short runs Apache Kafka still took five times the CPU that it
    took a minute later.
    """
    if not bed.first_time(role, NAME):
        return
    cheapest = math.inf
    for _ in range(_WARM_UP_PASSES):
        with cpu_of(server) as cpu:
            for shape in _WARM_UP:
                with bed.topic(server, shape.partitions) as topic:
                    write(bed, server, topic, shape, bed.sizes.produce_bytes // 4 // shape.record_bytes)
        if cpu.seconds > cheapest * _STILL_WARMING:
            return
        cheapest = min(cheapest, cpu.seconds)
