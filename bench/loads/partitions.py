"""Growth with the number of partitions: creating them, memory, single-record writes spread over all, restart.

Each point has a fresh server. A partition counts as created when it has acknowledged a record.
"""

from __future__ import annotations

import time
from functools import partial

from bench.bed import Bed, MismatchError, cpu_of
from bench.loads import Case, Measured
from bench.loads.requests import blast
from bench.loads.start import create_partitions, restart_after_kill, spread_frames, write_to_each
from bench.measure import Quantity
from bench.plan import Sizes
from bench.process import rss_mb
from bench.servers import Server
from bench.wire import Connection

NAME = "partitions"
CREATE = Quantity("create and write to all", "s", "lower")
MEMORY = Quantity("RSS", "MB", "lower")
RATE = Quantity("requests", "req/s", "higher")
CPU = Quantity("broker CPU", "us/req", "lower")
START = Quantity("start after kill -9", "s", "lower")
_BURST = 10  # divides every point


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
        write_to_each(server, topics, sizes.timeout_s)
        created = time.perf_counter() - began
        frames = spread_frames(topics)
        bursts = [b"".join(frames[at : at + _BURST]) for at in range(0, count, _BURST)]
        with Connection(server.port, timeout_s=sizes.timeout_s) as connection:
            blast(connection, bursts, _BURST, 20, sizes.seconds * 2)  # the server is fresh: a JIT has to warm up
            before = _written(server, topics)
            with cpu_of(server) as cpu:
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
