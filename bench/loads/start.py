"""From starting the process to the first answer: on an empty formatted directory, and after kill -9.

The first answer is a Metadata response that names the broker and a leader for every partition. `first record` goes on
until a record is acknowledged, so that answering early and working late would show.
"""

from __future__ import annotations

import time
from functools import partial

from bench.bed import Bed, create_topic
from bench.loads import Case, Measured
from bench.loads.requests import acknowledge_each
from bench.measure import Quantity, Target
from bench.plan import Sizes
from bench.servers import Server
from bench.wire import Connection, batch, produce

NAME = "start"
PER_TOPIC = 1000  # Kafka's controller refuses requests that make more than 10,000 records
EMPTY = Quantity("first answer", "s", "lower", Target("absolute", "<=", 0.5))
KILLED = Quantity("first answer", "s", "lower", Target("absolute", "<=", 2.0))
FIRST_RECORD = Quantity("first record", "s", "lower")


def cases(sizes: Sizes) -> list[Case]:
    killed = f"{sizes.killed_partitions:,} partitions, after kill -9"
    return [
        Case(load=NAME, label="empty directory", quantities=(EMPTY, FIRST_RECORD), run=partial(_empty, sizes)),
        Case(load=NAME, label=killed, quantities=(KILLED, FIRST_RECORD), run=partial(_killed, sizes)),
    ]


def _empty(sizes: Sizes, bed: Bed, role: str) -> Measured:
    with bed.fresh(role) as server:
        began = time.perf_counter()
        first = server.start(sizes.start_timeout_s)
        create_topic(server, "first", 1)
        _first_record(server, "first")
        return {EMPTY: first, FIRST_RECORD: time.perf_counter() - began}


def _killed(sizes: Sizes, bed: Bed, role: str) -> Measured:
    with bed.fresh(role) as server:
        server.start(sizes.start_timeout_s)
        topics = create_partitions(server, sizes.killed_partitions)
        write_to_each(server, topics, sizes.timeout_s)
        first, record = restart_after_kill(bed, server, topics)
        return {KILLED: first, FIRST_RECORD: record}


def restart_after_kill(bed: Bed, server: Server, topics: dict[str, int]) -> tuple[float, float]:
    """kill -9, start: the seconds to the first answer and to the first acknowledged record."""
    server.kill()
    bed.settle()
    began = time.perf_counter()
    server.spawn()
    server.await_answer(bed.sizes.start_timeout_s, partitions=sum(topics.values()))
    answered = time.perf_counter() - began
    _first_record(server, next(iter(topics)))
    return answered, time.perf_counter() - began


def create_partitions(server: Server, count: int) -> dict[str, int]:
    """So many partitions, in topics of at most 1,000, all with a leader. Names have one length."""
    topics = {}
    with Connection(server.port, timeout_s=120.0) as connection:
        for first in range(0, count, PER_TOPIC):
            name, size = f"many-{first:06d}", min(PER_TOPIC, count - first)
            connection.create_topic(name, size)
            topics[name] = size
    server.await_answer(120.0, partitions=count)
    return topics


def spread_frames(topics: dict[str, int]) -> list[bytes]:
    """One single-record produce frame for each partition."""
    records = batch(b"x" * 100)
    places = [(name, index) for name, size in topics.items() for index in range(size)]
    return [produce(number, name, index, records) for number, (name, index) in enumerate(places)]


def write_to_each(server: Server, topics: dict[str, int], timeout_s: float) -> None:
    with Connection(server.port, timeout_s=timeout_s) as connection:
        acknowledge_each(connection, spread_frames(topics), timeout_s)


def _first_record(server: Server, topic: str) -> None:
    with Connection(server.port) as connection:
        acknowledge_each(connection, [produce(0, topic, 0, batch(b"first"))], 30.0)
