"""How much is measured: sizes, rounds and time limits, for the full run and for `--quick`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int = 3
    produce_bytes: int = 192_000_000  # payload of one produce run of 1 KB records; 100 B records take half of it
    consume_bytes: int = 512_000_000  # payload of the topic that is read
    seconds: float = 2.0  # one run of raw frames
    latency_records: int = 4000
    transactions: int = 1000
    partitions: tuple[int, ...] = (10, 100, 1000, 10_000)
    connections: tuple[int, ...] = (10, 100, 1000, 5000)
    group_members: tuple[int, ...] = (1, 10, 50)
    killed_partitions: int = 1000
    idle_s: float = 3.0  # how long a server rests before its memory is read
    timeout_s: float = 90.0  # one measurement
    start_timeout_s: float = 240.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


FULL = Sizes()
QUICK = replace(
    FULL,
    rounds=1,
    produce_bytes=24_000_000,
    consume_bytes=48_000_000,
    seconds=0.5,
    latency_records=500,
    transactions=100,
    partitions=(10, 100),
    connections=(10, 100),
    group_members=(1, 5),
    killed_partitions=100,
    idle_s=1.0,
)
