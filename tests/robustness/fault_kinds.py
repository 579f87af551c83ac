"""The faults of the long run: those of `edge_kinds`, and faults of the network, of the power and of single bits.

Each function returns what it hit in flight, or None when nothing was. When it returns, every node runs again.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ottla.protocol.records_header import HEADER_BYTES, iterate_batches
from tests.robustness.cluster_faults import HANG_THEN_KILL, LEADER_HANG
from tests.robustness.cluster_process import wait_for
from tests.robustness.edge_kinds import DIES, HANGS, anywhere, finish_move
from tests.robustness.edge_kinds import KINDS as EDGE_KINDS
from tests.robustness.edge_soak import PLAIN, SOLO, TABLE, WANDER
from tests.robustness.fault_cluster import RecordedSoak
from tests.robustness.read_process_write import INPUT, OUTPUT
from tests.robustness.trapped_node import AFTER, BEFORE, Trap

Fault = Callable[[RecordedSoak], str | None]
PARTED = "parted"
REPLICATED = (PLAIN, WANDER, TABLE, INPUT, OUTPUT, "__consumer_offsets", "__transaction_state")
SECOND = r"/second/"


def await_flight(soak: RecordedSoak) -> int:
    """Until some records are under way; how many."""
    deadline = time.monotonic() + 10
    while not (pending := soak.in_flight()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return pending


def flight(pending: int, what: str) -> str | None:
    return f"{what}, {pending} records in flight" if pending else None


# ---------------------------------------------------------------------------------------------------------- the network


def cut_off(soak: RecordedSoak) -> str | None:
    """A node reaches no other node, and clients reach all of them."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    pending = await_flight(soak)
    cluster.links.isolate(node, list(cluster.nodes))
    return _part(soak, node, flight(pending, f"node {node} cut off"))


def cut_one_link(soak: RecordedSoak) -> str | None:
    node, other = soak.chance.sample(list(soak.cluster.nodes), 2)
    pending = await_flight(soak)
    soak.cluster.links.cut_pairs = {frozenset({node, other})}
    return _part(soak, node, flight(pending, f"no link between {node} and {other}"))


def cut_one_way(soak: RecordedSoak) -> str | None:
    node, other = soak.chance.sample(list(soak.cluster.nodes), 2)
    pending = await_flight(soak)
    soak.cluster.links.cut_ways = {(node, other)}
    return _part(soak, node, flight(pending, f"nothing gets from {node} to {other}"))


def _part(soak: RecordedSoak, node: int, hit: str | None) -> str | None:
    time.sleep(soak.chance.choice([1.0, 3.0, 6.0, 13.0]))
    soak.cluster.links.heal()
    soak.cluster.links.reset(node)  # its connections have lost bytes
    soak.cluster.wait_up()
    return hit


def broken_connections(soak: RecordedSoak) -> str | None:
    pending = await_flight(soak)
    for _ in range(10):
        soak.cluster.links.reset(soak.chance.choice(list(soak.cluster.nodes)))
        time.sleep(0.2)
    return flight(pending, "connections broken")


def slow_links(soak: RecordedSoak) -> str | None:
    pending = await_flight(soak)
    soak.cluster.links.delay_ms = soak.chance.choice([10, 30, 100])
    time.sleep(3)
    soak.cluster.links.heal()
    return flight(pending, "links delayed")


# ------------------------------------------------------------------------------------------------------------- processes


def others_hung_then_killed(soak: RecordedSoak) -> str | None:
    """Two nodes hang, so that nothing can be acknowledged; the third one dies with what nobody else has."""
    cluster = soak.cluster
    leader, *others = soak.chance.sample(list(cluster.nodes), 3)
    for node in others:
        cluster.signal(node, signal.SIGSTOP)
    time.sleep(soak.chance.uniform(0.3, 1.5))
    pending = soak.in_flight()
    cluster.kill(leader)
    for node in others:
        cluster.signal(node, signal.SIGCONT)
    time.sleep(soak.chance.choice([0.0, 1.0, 3.0]))
    cluster.start(leader)
    cluster.wait_up()
    return flight(pending, f"node {leader} killed alone")


# ------------------------------------------------------------------------------------------------------------- the power


def power_cut(soak: RecordedSoak) -> str | None:
    """A node dies, and its second disk has only what was synced."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    await_flight(soak)
    cluster.kill(node)
    return _back(soak, node, f"node {node}")


def power_cut_at(soak: RecordedSoak, call: str, path: str) -> str | None:
    """The same, at a call on that disk."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    when, count = soak.chance.choice([BEFORE, AFTER]), soak.chance.randrange(1, 6)
    cluster.arm(node, Trap(call=call, path=path, when=when, count=count))
    deadline = time.monotonic() + 20
    while cluster.sprung(node) is None and time.monotonic() < deadline:
        soak.table.write(10)
        time.sleep(0.2)
    hit = cluster.caught(node, 0)
    return None if hit is None else _back(soak, node, hit)


def power_cut_in_a_move(soak: RecordedSoak) -> str | None:
    """A copy gets its name on that disk, and the disk may not have the name, or the copy, after the cut."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    target = str(cluster.dropping(node))
    topics = [SOLO] if soak.chance.random() < 0.6 else [PLAIN, WANDER, TABLE]
    places = sorted(place for place, (path, _) in cluster.places(node).items() if place[0] in topics and path != target)
    if not places:
        return None
    topic, partition = soak.chance.choice(places)
    name = rf"{topic}-{partition}"
    step = soak.chance.choice([rf"/{name}\.\w+-future -> ", rf"/{name} -> \S+-delete$"])
    cluster.arm(node, Trap(call="rename", path=step, when=soak.chance.choice([BEFORE, AFTER])))
    cluster.move(node, topic, partition, target)
    hit = cluster.caught(node)
    if hit is not None:
        hit = _back(soak, node, hit)
    finish_move(soak, node, topic, partition, target)
    return hit


def _back(soak: RecordedSoak, node: int, what: str) -> str | None:
    """Start a node that is dead, after the cut of its power; None if nothing was lost."""
    lost, names = soak.cluster.cut_power(node, soak.chance.randrange(1 << 30))
    time.sleep(soak.chance.choice([0.0, 0.0, 1.5]))
    soak.cluster.start(node)
    soak.cluster.wait_up()
    return f"{what}: {lost} bytes lost, {names} names taken back" if lost or names else None


# ------------------------------------------------------------------------------------------------------------------ bits


def flip(soak: RecordedSoak, segment: Path, start: int) -> str | None:
    """Bits of one batch that begins at `start` or later, where its checksum covers them."""
    data = bytearray(segment.read_bytes())
    places = [(at, header.size) for at, header in iterate_batches(bytes(data)) if at >= start]
    if not places:
        return None
    at, size = soak.chance.choice(places)
    for _ in range(soak.chance.randrange(1, 4)):
        data[at + soak.chance.randrange(HEADER_BYTES, size)] ^= 1 << soak.chance.randrange(8)
    segment.write_bytes(data)
    return f"bits flipped in {segment.parent.name}/{segment.name} at {at}"


def flipped_before_recovery(soak: RecordedSoak) -> str | None:
    """A killed node finds damaged bytes in last segments, which recovery reads. It takes their records from the leaders."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    await_flight(soak)
    cluster.kill(node)
    hits = [
        flip(soak, segments[-1], 0)
        for topic in REPLICATED
        for folder in cluster.folders(node, f"{topic}-*[0-9]")
        if (segments := sorted(folder.glob("*.log")))
    ]
    cluster.start(node)
    cluster.wait_up()
    hit = [text for text in hits if text is not None]
    return f"{len(hit)} segments: {hit[0]}" if hit else None


def flipped_under_a_follower(soak: RecordedSoak) -> str | None:
    """Bits of an old segment of a follower; nobody reads them, and its operator replaces the replica."""
    cluster = soak.cluster
    row = soak.chance.choice(cluster.partitions(PLAIN))
    node = soak.chance.choice([replica for replica in row.replicas if replica != row.leader])
    (folder,) = cluster.folders(node, f"{PLAIN}-{row.id}")
    segments = sorted(folder.glob("*.log"))[:-1]
    pending = await_flight(soak)
    hit = flip(soak, soak.chance.choice(segments), 0) if segments else None
    time.sleep(soak.chance.uniform(0.2, 1))
    cluster.stop(node)
    shutil.rmtree(folder)
    cluster.start(node)
    cluster.wait_up()
    wait_for(lambda: cluster.in_sync(PLAIN), 60, f"{folder.name} of node {node} does not come back")
    return hit if pending else None


KINDS: dict[str, tuple[str, Fault]] = {
    **EDGE_KINDS,
    "any moment: hung, then killed": (HANGS, partial(anywhere, kind=HANG_THEN_KILL)),
    "any moment: active controller hung for long": (HANGS, partial(anywhere, kind=LEADER_HANG)),
    "any moment: others hung, then killed": (HANGS, others_hung_then_killed),
    "network: node cut off": (PARTED, cut_off),
    "network: link cut": (PARTED, cut_one_link),
    "network: link cut one way": (PARTED, cut_one_way),
    "network: connections broken": (PARTED, broken_connections),
    "network: delayed": (PARTED, slow_links),
    "power cut: any moment": (DIES, power_cut),
    "power cut: at a write of records": (DIES, partial(power_cut_at, call="write", path=SECOND + r".*\.log$")),
    "power cut: at a checkpoint": (DIES, partial(power_cut_at, call="write", path=SECOND + ".*-checkpoint$")),
    "power cut: in a move": (DIES, power_cut_in_a_move),
    "flipped bits: before a recovery": (DIES, flipped_before_recovery),
    "flipped bits: under a follower": (DIES, flipped_under_a_follower),
}
"""Name -> what becomes of a node, and the fault."""
