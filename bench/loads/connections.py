"""Growth with the number of open connections: memory, and how fast another client is answered meanwhile.

Each connection has asked ApiVersions and then stays open and silent, as most connections of most clusters do.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

from bench.bed import Bed
from bench.loads import Case, Measured
from bench.measure import Quantity, Target, percentile
from bench.plan import Sizes
from bench.process import rss_mb, wait_until_quiet
from bench.wire import Connection

NAME = "connections"
OPEN = Quantity("open all", "s", "lower")
GROWTH = Quantity("RSS grown", "MB", "lower", Target("absolute", "<=", 52.4))
ANSWER = Quantity("p99 of others", "ms", "lower", Target("absolute", "<=", 100.0))
_ASKED = 300


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(
            load=NAME,
            label=f"{count:,} connections",
            quantities=(OPEN, GROWTH, ANSWER),
            run=partial(_measure, sizes, count),
            x=count,
        )
        for count in sizes.connections
    ]


def _measure(sizes: Sizes, count: int, bed: Bed, role: str) -> Measured:
    with bed.fresh(role) as server, ExitStack() as stack:
        server.start(sizes.start_timeout_s)
        _ask_others(server.port)  # the first answers warm the server and are not part of the growth
        wait_until_quiet([server.pid])
        idle = rss_mb(server.pid)
        began = time.perf_counter()
        for _ in range(count):
            connection = stack.enter_context(Connection(server.port, timeout_s=sizes.timeout_s))
            connection.api_versions()
        opened = time.perf_counter() - began
        answers = _ask_others(server.port)
        return {OPEN: opened, GROWTH: rss_mb(server.pid) - idle, ANSWER: percentile(answers, 99) * 1000}


def _ask_others(port: int) -> list[float]:
    """Seconds from connecting to the Metadata answer, again and again on a new connection."""
    values = []
    for _ in range(_ASKED):
        began = time.perf_counter()
        with Connection(port) as connection:
            connection.metadata()
        values.append(time.perf_counter() - began)
    return values
