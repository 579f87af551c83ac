"""Memory of a server: idle after its start, and after it has written and read.

RSS is the demand; PSS beside it divides pages that several processes share. The page cache is in neither.
"""

from __future__ import annotations

import time
from functools import partial

from bench.bed import Bed, create_topic, require_written
from bench.loads import Case, Measured
from bench.loads.produce import Shape, write
from bench.measure import PSS, RSS
from bench.plan import Sizes
from bench.process import pss_mb, rss_mb, wait_until_quiet
from bench.servers import Server

NAME = "memory"
_SHAPES = (
    Shape(record_bytes=1000, partitions=6, codec="none", acks="all"),
    Shape(record_bytes=100, partitions=6, codec="lz4", acks="1"),
)


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(load=NAME, label="idle", quantities=(RSS, PSS), run=partial(_idle, sizes)),
        Case(load=NAME, label="after writing and reading", quantities=(RSS, PSS), run=partial(_loaded, sizes)),
    ]


def _read(sizes: Sizes, server: Server) -> Measured:
    time.sleep(sizes.idle_s)
    wait_until_quiet([server.pid])
    return {RSS: rss_mb(server.pid), PSS: pss_mb(server.pid)}


def _idle(sizes: Sizes, bed: Bed, role: str) -> Measured:
    with bed.fresh(role) as server:
        server.start(sizes.start_timeout_s)
        return _read(sizes, server)


def _loaded(sizes: Sizes, bed: Bed, role: str) -> Measured:
    with bed.fresh(role) as server:
        server.start(sizes.start_timeout_s)
        for shape in _SHAPES:
            topic, count = bed.name("topic"), sizes.produce_bytes // shape.record_bytes
            create_topic(server, topic, shape.partitions)
            write(bed, server, topic, shape, count)
            require_written(server, topic, shape.partitions, count)
            bed.java.run("assign", server.bootstrap, topic, shape.partitions, count, timeout_s=sizes.timeout_s)
        return _read(sizes, server)
