"""Time to a stable group: consumers that subscribe at once, until each partition has one owner and the shares are even.

The members are confluent-kafka consumers in threads of their own, as applications have them; both servers have the same
settings, with heartbeats every half second. What is timed is the first rebalance of a new group, and then the one that
a member causes which comes late.
"""

from __future__ import annotations

import threading
import time
from functools import partial

from confluent_kafka import Consumer

from bench.bed import Bed, MismatchError, cpu_of
from bench.loads import Case, Measured
from bench.measure import Quantity, Target
from bench.plan import Sizes
from bench.servers import Server

NAME = "groups"
_NO_LONGER = Target("ratio", "<=", 1.0)
STABLE = Quantity("stable", "s", "lower", _NO_LONGER)
AFTER_JOIN = Quantity("one more member", "s", "lower", _NO_LONGER)
CPU = Quantity("broker CPU", "s", "lower")
_PROTOCOLS: dict[str, dict[str, str | int]] = {
    "consumer protocol": {"group.protocol": "consumer"},
    "cooperative-sticky": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 500,
    },
}


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(
            load=NAME,
            label=f"{members} members, {protocol}",
            quantities=(STABLE, AFTER_JOIN, CPU),
            run=partial(_measure, sizes, members, protocol),
        )
        for protocol in _PROTOCOLS
        for members in sizes.group_members
    ]


def _measure(sizes: Sizes, members: int, protocol: str, bed: Bed, role: str) -> Measured:
    server = bed.shared(role)
    partitions = members * 2 + 2
    with bed.topic(server, partitions) as topic:
        if bed.first_time(role, "groups"):
            _Group(server, bed.name("group"), topic, protocol).run_once(partitions, sizes.timeout_s)
        bed.settle()
        group = _Group(server, bed.name("group"), topic, protocol)
        try:
            with cpu_of(server) as cpu:
                began = time.perf_counter()
                for _ in range(members):
                    group.add()
                group.await_balance(partitions, sizes.timeout_s)
                stable = time.perf_counter() - began
                began = time.perf_counter()
                group.add()
                group.await_balance(partitions, sizes.timeout_s)
                later = time.perf_counter() - began
        finally:
            group.close()
    return {STABLE: stable, AFTER_JOIN: later, CPU: cpu.seconds}


class _Group:
    def __init__(self, server: Server, name: str, topic: str, protocol: str) -> None:
        self._settings: dict[str, str | int] = {
            "bootstrap.servers": server.bootstrap,
            "group.id": name,
            **_PROTOCOLS[protocol],
        }
        self._topic = topic
        self._owned: list[set[int]] = []
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()

    def add(self) -> None:
        owned: set[int] = set()
        self._owned.append(owned)
        thread = threading.Thread(target=self._run, args=(owned,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, owned: set[int]) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe(
            [self._topic],
            on_assign=lambda _, given: owned.update(partition.partition for partition in given),
            on_revoke=lambda _, taken: owned.difference_update(partition.partition for partition in taken),
        )
        while not self._stop.is_set():
            consumer.poll(0.05)
        consumer.close()

    def await_balance(self, partitions: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._balanced(partitions):
            if time.monotonic() > deadline:
                raise MismatchError(f"the group was not stable in {timeout_s:g} s: {[len(o) for o in self._owned]}")
            time.sleep(0.002)

    def _balanced(self, partitions: int) -> bool:
        sizes = [len(owned) for owned in self._owned]
        return sum(sizes) == partitions and max(sizes) - min(sizes) <= 1

    def run_once(self, partitions: int, timeout_s: float) -> None:
        """The first group of a server also makes its offsets topic."""
        self.add()
        try:
            self.await_balance(partitions, timeout_s)
        finally:
            self.close()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
