"""Rounds of faults against a three-node cluster under load, and the longest time without an acknowledgement."""

from __future__ import annotations

import json
import random
import signal
import threading
import time

from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.robustness.cluster_process import ClusterProcess, wait_for
from tests.robustness.load import Reader, Sender

PARTITIONS = 3
KILL = "kill"
HANG = "hang"
HANG_THEN_KILL = "hang then kill"
ALL = "kill all"
LONG_HANG = "long hang"
LEADER_HANG = "long hang of the active controller"
FIRST_NODE_HANG = "long hang of node 1"
LONG_HANGS = (LONG_HANG, LEADER_HANG, FIRST_NODE_HANG)
HANG_SECONDS = 4.0
LONG_HANG_SECONDS = 12.0
"""Longer than a broker's session: it is fenced and comes back. A client that knows no other leader than the one that hangs
notices by its own timeout (30 s for librdkafka), so each round begins with the leaders spread."""


class GapMeter:
    """The longest time in which no sender got an acknowledgement."""

    def __init__(self, senders: list[Sender]) -> None:
        self._senders = senders
        self.longest = 0.0
        self._since = time.monotonic()
        self._count = -1
        self._running = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._running:
            count = sum(len(acked) for sender in self._senders for acked in sender.acked)
            now = time.monotonic()
            if count != self._count:
                self._count, self._since = count, now
            self.longest = max(self.longest, now - self._since)
            time.sleep(0.02)

    def take(self) -> float:
        """The longest gap since the last call."""
        longest, self.longest, self._since = self.longest, 0.0, time.monotonic()
        return longest

    def close(self) -> None:
        self._running = False
        self._thread.join(5)


def create_topic(cluster: ClusterProcess, name: str, partitions: int = PARTITIONS, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {"min.insync.replicas": "2", **configs}
    topic = NewTopic(name, partitions, 3, config=config)
    admin.create_topics([topic], operation_timeout=30)[name].result(30)


def active_controller(cluster: ClusterProcess) -> int:
    """The leader of the quorum, by what the nodes have on disk."""
    files = [node.directory / "data" / "__cluster_metadata-0" / "quorum-state" for node in cluster.nodes.values()]
    states = [json.loads(file.read_text()) for file in files]
    leader: int = max(states, key=lambda state: (state["leaderEpoch"], state["leaderId"]))["leaderId"]
    return leader


def fault(cluster: ClusterProcess, kind: str, chance: random.Random) -> None:
    """One fault and its end: every node runs again when this returns."""
    if kind == LEADER_HANG:
        node = active_controller(cluster)
    else:
        node = 1 if kind == FIRST_NODE_HANG else chance.choice(list(cluster.nodes))
    if kind == KILL:
        cluster.kill(node)
        time.sleep(chance.choice([0.0, 0.5, 2.5]))
        cluster.start(node)
    elif kind in (HANG, *LONG_HANGS, HANG_THEN_KILL):
        cluster.signal(node, signal.SIGSTOP)
        time.sleep(LONG_HANG_SECONDS if kind in LONG_HANGS else chance.uniform(0.5, HANG_SECONDS))
        if kind != HANG_THEN_KILL:
            cluster.signal(node, signal.SIGCONT)
        else:
            cluster.kill(node)
            cluster.start(node)
    else:
        for each in cluster.nodes:
            cluster.signal(each, signal.SIGKILL)
        for each in cluster.nodes:
            cluster.processes[each].wait()
        for each in cluster.nodes:
            cluster.start(each)


def in_sync(cluster: ClusterProcess, topic: str) -> bool:
    found = _partitions(cluster, topic)
    return bool(found) and all(len(row.isrs) == len(row.replicas) for row in found)


def settled(cluster: ClusterProcess, topic: str) -> bool:
    """In sync, and the first replica of each partition leads."""
    found = _partitions(cluster, topic)
    return bool(found) and all(len(row.isrs) == len(row.replicas) and row.leader == row.replicas[0] for row in found)


def _partitions(cluster: ClusterProcess, topic: str) -> list[PartitionMetadata]:
    """Empty while nobody answers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    try:
        return list(admin.list_topics(topic, timeout=60).topics[topic].partitions.values())
    except Exception:  # noqa: BLE001 - whatever the client says while nodes come back
        return []


def run_rounds(cluster: ClusterProcess, kinds: list[str], seed: int) -> dict[str, float]:
    """Faults of `kinds` one after the other; after each, everything acknowledged is looked for. Longest gaps by kind."""
    chance = random.Random(seed)
    create_topic(cluster, "t")
    senders = [
        Sender(f"s{i}", cluster.bootstrap_servers, "t", PARTITIONS, idempotent=True, seed=seed, in_flight=1)
        for i in range(2)
    ]
    reader = Reader(cluster.bootstrap_servers, senders)
    meter = GapMeter(senders)
    gaps: dict[str, float] = {}
    try:
        for kind in kinds:
            for sender in senders:
                sender.resume()
            time.sleep(chance.uniform(0.3, 1.0))
            meter.take()
            fault(cluster, kind, chance)
            time.sleep(chance.uniform(0.3, 1.0))
            cluster.wait_up()
            for sender in senders:
                sender.pause(90)
            gap = meter.take()
            print(f"{kind}: {gap:.2f} s without an acknowledgement", flush=True)
            gaps[kind] = max(gaps.get(kind, 0.0), gap)
            reader.check()
            wait_for(lambda: settled(cluster, "t"), 60, "the replicas do not come back into the ISR or do not lead")
    finally:
        meter.close()
        for sender in senders:
            sender.close()
    assert reader.records == sum(sum(sender.sent) for sender in senders)
    return gaps
