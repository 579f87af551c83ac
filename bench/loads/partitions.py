"""Growth with the number of partitions: creating them, memory, single-record writes spread over all, restart.

Each point has a fresh server. After creation every partition gets a record before the rate is measured.
"""

from __future__ import annotations

import time
from functools import partial

from bench.bed import Bed, MismatchError, cpu_of
from bench.loads import Case, Measured
from bench.loads.requests import blast
from bench.loads.start import create_partitions, restart_after_kill, spread_frames, to_bursts, write_to_each
from bench.measure import Quantity
from bench.plan import Sizes
from bench.process import rss_mb
from bench.servers import Server
from bench.wire import Connection

NAME = "partitions"
CREATE = Quantity("create all", "s", "lower")
MEMORY = Quantity("RSS", "MB", "lower")
RATE = Quantity("requests", "req/s", "higher")
CPU = Quantity("broker CPU", "us/req", "lower")
START = Quantity("start after kill -9", "s", "lower")
_BURST = 10


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(
            load=NAME,
            label=f"{count:,} partitions",
            quantities=(CREATE, MEMORY, RATE, CPU, START),
            run=partial(_measure, sizes, count),
            x=count,
        )
        for count in sizes.partitions
    ]


def _measure(sizes: Sizes, count: int, bed: Bed, role: str) -> Measured:
    with bed.fresh(role) as server:
        server.start(sizes.start_timeout_s)
        began = time.perf_counter()
        topics = create_partitions(server, count)
        created = time.perf_counter() - began
        write_to_each(server, topics, sizes.timeout_s)
        bursts = to_bursts(spread_frames(topics), _BURST)
        before = _written(server, topics)
        with Connection(server.port, timeout_s=sizes.timeout_s) as connection, cpu_of(server) as cpu:
            done = blast(connection, bursts, _BURST, 20, sizes.seconds)
        if _written(server, topics) - before != done.answered:
            raise MismatchError(f"the log does not hold the {done.answered} records that were acknowledged")
        memory = rss_mb(server.pid)
        started, _ = restart_after_kill(bed, server, topics)
        per_request = cpu.seconds / done.answered * 1e6
        return {CREATE: created, MEMORY: memory, RATE: done.rate, CPU: per_request, START: started}


def _written(server: Server, topics: dict[str, int]) -> int:
    with Connection(server.port, timeout_s=60.0) as connection:
        return sum(sum(connection.end_offsets(name, size)) for name, size in topics.items())
