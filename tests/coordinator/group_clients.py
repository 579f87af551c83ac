"""Real consumers in one group, and their invariant: no partition ever has two owners.

Each consumer runs in a thread of its own, as in production. Inside the client's callbacks the consumer writes its
assigned and revoked partitions to one ledger. A partition that is assigned while a different consumer still owns it is
a violation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

POLL_S = 0.05


class Ledger:
    """Who has which partition, according to the callbacks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owners: dict[int, str] = {}
        self.violations: list[str] = []
        self.revocations: dict[str, int] = {}

    def assigned(self, name: str, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                owner = self.owners.get(partition.partition)
                if owner not in (None, name):
                    self.violations.append(f"{partition.partition} was given to {name} while {owner} had it")
                self.owners[partition.partition] = name

    def revoked(self, name: str, partitions: list[TopicPartition]) -> None:
        with self._lock:
            self.revocations[name] = self.revocations.get(name, 0) + len(partitions)
            for partition in partitions:
                if self.owners.get(partition.partition) == name:
                    del self.owners[partition.partition]

    def counts(self) -> dict[str, int]:
        with self._lock:
            counts: dict[str, int] = {}
            for owner in self.owners.values():
                counts[owner] = counts.get(owner, 0) + 1
            return counts


class GroupMember:
    """A consumer in its thread, from subscribe to close."""

    def __init__(self, servers: str, group: str, topic: str, name: str, ledger: Ledger, **options: Any) -> None:
        named = {key.replace("_", "."): value for key, value in options.items()}
        if named.get("group.protocol") != "consumer":
            named = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 300, **named}
        self.name = name
        self.errors: list[str] = []
        self.values: list[str] = []
        self.longest_gap_s = 0.0
        """Between two records, while it read."""
        self._ledger = ledger
        self._stop = threading.Event()
        self._leave = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **named,
            }
        )
        self._cooperative = "consumer" in str(named.get("group.protocol")) or "cooperative" in str(
            named.get("partition.assignment.strategy")
        )
        self._thread = threading.Thread(target=self._run, args=(topic,), daemon=True)
        self._thread.start()

    def _run(self, topic: str) -> None:
        self._consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self._ledger.assigned(self.name, partitions),
            on_revoke=lambda _, partitions: self._ledger.revoked(self.name, partitions),
            on_lost=lambda _, partitions: self._ledger.revoked(self.name, partitions),
        )
        last = None
        while not self._stop.is_set():
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
                continue
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - last if last is not None else 0.0)
            last = now
            self.values.append((message.value() or b"").decode())
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), f"{self.name} does not close"


def await_that(condition: Callable[[], bool], what: Callable[[], str], timeout_s: float = 40) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(what())
        time.sleep(0.05)


def await_balance(ledger: Ledger, members: list[GroupMember], partitions: int, timeout_s: float = 60) -> float:
    """Until every partition has an owner and the shares differ by one at most; the seconds that it took."""
    began = time.monotonic()
    names = {member.name for member in members}

    def balanced() -> bool:
        counts = ledger.counts()
        shares = [counts.get(name, 0) for name in names]
        return counts.keys() <= names and sum(shares) == partitions and max(shares) - min(shares) <= 1

    await_that(balanced, lambda: f"not balanced: {ledger.counts()} of {sorted(names)}", timeout_s)
    return time.monotonic() - began
