"""The edge faults, one function each. Each returns what it hit in flight, or None when the step did not come.

A node is caught by a trap (`trapped_node`) at the very call; the function then ends the fault: when it returns, every
node has been started again and what was asked for (a move, a reassignment, a deletion) is done.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaException, Producer, TopicPartition

from ottla.client.cluster import GROUP
from ottla.log.checkpoints import read_offsets
from ottla.log.file_names import CLEANER_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from ottla.runtime.disk import DiskStorage
from tests.robustness.cluster_faults import ALL, HANG, KILL, LONG_HANG, active_controller, fault
from tests.robustness.cluster_process import wait_for
from tests.robustness.edge_load import Failures, Reborn, producer_of, write_all
from tests.robustness.edge_replicas import assert_identical
from tests.robustness.edge_soak import PLAIN, SOLO, TABLE, WANDER, EdgeSoak
from tests.robustness.load import CLIENT
from tests.robustness.trapped_node import AFTER, BEFORE, FAIL, STOP, Trap
from tests.robustness.trapped_node import KILL as TRAP_KILL

Fault = Callable[[EdgeSoak], str | None]
MOVABLE = (SOLO, PLAIN, WANDER, TABLE, "input", "output", "__consumer_offsets", "__transaction_state")
TAIL_VALUE = 10_000
SLOW_RATE = 2_000


# ------------------------------------------------------------------------------------------- moves between directories


def _chosen_move(soak: EdgeSoak, node: int, *, not_first: bool = False) -> tuple[str, int, str]:
    """A replica of the node and a directory that it is not in; often one that has no other replica."""
    places = soak.cluster.places(node)
    topics = [SOLO] if soak.chance.random() < 0.6 else list(MOVABLE)
    topic, partition = soak.chance.choice(sorted(where for where in places if where[0] in topics))
    directories = list(map(str, soak.cluster.data_dirs(node)))[1 if not_first else 0 :]
    target = soak.chance.choice([path for path in directories if path != places[topic, partition][0]])
    return topic, partition, target


def _step_of_move(call: str, tp: str) -> str:
    """The regular expression of a step of the promotion."""
    name = re.escape(tp)
    return {
        "copy": rf"/{name}\.\w+-future/\d+\.log$",
        "future": rf"/{name}\.\w+-future -> ",
        "source": rf"/{name} -> \S+-delete$",
        "assign": rf"(^| ){name}( |$)",
    }[call]


def move_killed(soak: EdgeSoak, step: str, call: str, when: str = BEFORE) -> str | None:
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    topic, partition, target = _chosen_move(soak, node)
    count = soak.chance.randrange(1, 4) if step == "copy" else 1
    cluster.arm(node, Trap(call=call, path=_step_of_move(step, f"{topic}-{partition}"), when=when, count=count))
    cluster.move(node, topic, partition, target)
    hit = cluster.caught(node)
    if hit is not None:
        restart(soak, node)
    finish_move(soak, node, topic, partition, target)
    return hit


def move_stopped(soak: EdgeSoak) -> str | None:
    """The node hangs in the midst of a promotion, and then dies or goes on."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    topic, partition, target = _chosen_move(soak, node)
    step, when = soak.chance.choice([("future", BEFORE), ("future", AFTER), ("source", BEFORE), ("source", AFTER)])
    path = _step_of_move(step, f"{topic}-{partition}")
    cluster.arm(node, Trap(call="rename", path=path, when=when, action=STOP))
    cluster.move(node, topic, partition, target)
    hit = cluster.caught(node)
    if hit is not None:
        time.sleep(soak.chance.uniform(0.5, 3))
        if soak.chance.random() < 0.5:
            cluster.signal(node, signal.SIGCONT)
        else:
            cluster.kill(node)
            cluster.start(node)
    finish_move(soak, node, topic, partition, target)
    return hit


def move_target_fails(soak: EdgeSoak) -> str | None:
    """The target's disk fails in the rename: its directory is offline, the source is as it was; a restart mends it."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    topic, partition, target = _chosen_move(soak, node, not_first=True)
    path = _step_of_move("future", f"{topic}-{partition}")
    cluster.arm(node, Trap(call="rename", path=path, action=FAIL))
    cluster.move(node, topic, partition, target)
    hit = cluster.caught(node)
    if hit is not None:
        wait_for(lambda: any(target in line for line in cluster.offline_directories()), 20, "no directory is offline")
        time.sleep(3)  # longer than file.delete.delay.ms: what was put into -delete by mistake is erased
        cluster.kill(node)
        cluster.start(node)
    cluster.wait_up()
    wait_for(lambda: settled_move(soak, node, topic, partition), 40, f"{topic}-{partition} is moving for ever")
    return hit


def settled_move(soak: EdgeSoak, node: int, topic: str, partition: int) -> bool:
    where = soak.cluster.places(node).get((topic, partition))
    return where is not None and where[1] is None and bool(where[0])


def finish_move(soak: EdgeSoak, node: int, topic: str, partition: int, target: str) -> None:
    soak.cluster.wait_up()
    what = f"{topic}-{partition} of node {node} does not get to {target}"
    wait_for(lambda: soak.cluster.moved(node, topic, partition, target), 40, what)


def move_and_truncation(soak: EdgeSoak) -> str | None:
    """A follower's copy holds a tail that the next leader does not know: the follower truncates, so must the copy."""
    cluster = soak.cluster
    order = soak.chance.sample(list(cluster.nodes), 3)
    leader, heir, follower = order
    topic = f"fork-{soak.chance.randrange(10**9)}"
    cluster.create(topic, [order], min_insync_replicas="2")
    wait_for(lambda: cluster.settled(topic), 30, topic)
    _write_values(soak, topic, b"base", 20)
    cluster.move_rate(follower, SLOW_RATE)
    source = cluster.places(follower)[topic, 0][0]
    target = soak.chance.choice([str(p) for p in cluster.data_dirs(follower) if str(p) != source])
    position = cluster.log_size(follower)
    cluster.signal(heir, signal.SIGSTOP)
    try:
        _write_tail(soak, topic, follower)
        cluster.move(follower, topic, 0, target)
        copied = _wait_copied(soak, topic, follower)
        cluster.kill(leader)
        copying = bool(cluster.folders(follower, f"{topic}-0.*-future"))
    finally:
        cluster.signal(heir, signal.SIGCONT)
    _write_values(soak, topic, b"heir", 160, TAIL_VALUE)
    truncated = "log.truncated" in cluster.log_since(follower, position)
    cluster.start(leader)
    cluster.wait_up()
    cluster.move_rate(follower, None)
    finish_move(soak, follower, topic, 0, target)
    cluster.wait_in_sync(topic)
    replicas = [path for node in order for path in cluster.folders(node, f"{topic}-0")]
    assert len(replicas) == 3, replicas
    assert_identical(replicas, 20 + 160)
    cluster.delete(topic)
    return f"{topic}: {copied} bytes copied when the leader died" if truncated and copying else None


def _write_values(soak: EdgeSoak, topic: str, tag: bytes, count: int, size: int = 100) -> None:
    failures = Failures()
    producer = producer_of(soak.cluster.bootstrap_servers, **{"batch.num.messages": 1})
    for number in range(count):
        value = b"%s %d " % (tag, number)
        key = b"%d" % (number % 20)
        producer.produce(topic, value + b"x" * size, key=key, partition=0, on_delivery=failures.on_delivery)
    write_all(producer, failures, topic)


def _write_tail(soak: EdgeSoak, topic: str, follower: int) -> None:
    """Records that nobody acknowledges: the leader and one follower have them, and then their producer is gone."""
    config = {"batch.num.messages": 1, "acks": 1, "enable.idempotence": False}
    producer = producer_of(soak.cluster.bootstrap_servers, **config)
    for number in range(250):
        producer.produce(topic, b"tail %d " % number + b"y" * TAIL_VALUE, partition=0)
    producer.flush(20)

    def fetched() -> bool:
        return _size(soak, follower, f"{topic}-0") > 240 * TAIL_VALUE

    wait_for(fetched, 20, f"{topic}: the follower does not fetch")


def _size(soak: EdgeSoak, node: int, pattern: str) -> int:
    folders = soak.cluster.folders(node, pattern)
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.log"))


def _wait_copied(soak: EdgeSoak, topic: str, follower: int) -> int:
    pattern = f"{topic}-0.*-future"
    wait_for(lambda: _size(soak, follower, pattern) > 500_000, 20, f"{topic}: the copy does not begin")
    return _size(soak, follower, pattern)


def move_then_reborn(soak: EdgeSoak) -> str | None:
    """A node dies in a promotion; before it comes back, the topic is deleted and made again under the same name."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    topic, partition = soak.chance.choice(
        [(Reborn.TOPIC, 0), (Reborn.TOPIC, 1), (Reborn.LEDGER, 0), (Reborn.LEDGER, 1)]
    )
    source = cluster.places(node)[topic, partition][0]
    target = soak.chance.choice([str(p) for p in cluster.data_dirs(node) if str(p) != source])
    step, when = soak.chance.choice([("future", BEFORE), ("future", AFTER), ("source", BEFORE), ("source", AFTER)])
    cluster.arm(node, Trap(call="rename", path=_step_of_move(step, f"{topic}-{partition}"), when=when))
    cluster.move(node, topic, partition, target)
    hit = cluster.caught(node)
    if hit is not None:
        cluster.processes[node].wait(20)
    soak.reborn.delete()
    soak.reborn.create()
    soak.reborn.fill()
    if hit is not None:
        cluster.start(node)
    cluster.wait_up()
    return hit


# ------------------------------------------------------------------------------------------------------ reassignments


def _chosen_reassignment(soak: EdgeSoak) -> tuple[int, list[int], list[int]]:
    partition = soak.chance.randrange(2)
    before = soak.cluster.partitions(WANDER)[partition].replicas
    (new,) = set(soak.cluster.nodes) - set(before)
    kept = soak.chance.choice(before)
    return partition, before, soak.chance.sample([kept, new], 2)


def reassignment_gainer_killed(soak: EdgeSoak) -> str | None:
    cluster = soak.cluster
    partition, before, after = _chosen_reassignment(soak)
    (gainer,) = set(after) - set(before)
    count = soak.chance.randrange(1, 4)
    cluster.arm(gainer, Trap(call="write", path=rf"/{WANDER}-{partition}/\d+\.log$", count=count))
    cluster.reassign(WANDER, partition, after)
    hit = cluster.caught(gainer)
    if hit is not None:
        restart(soak, gainer)
    finish_reassignment(soak, partition, before, after)
    return hit


def reassignment_other_killed(soak: EdgeSoak) -> str | None:
    """The gainer hangs in its first write; the active controller or the leader dies meanwhile."""
    cluster = soak.cluster
    partition, before, after = _chosen_reassignment(soak)
    (gainer,) = set(after) - set(before)
    cluster.arm(gainer, Trap(call="write", path=rf"/{WANDER}-{partition}/\d+\.log$", action=STOP))
    cluster.reassign(WANDER, partition, after)
    hit = cluster.caught(gainer)
    if hit is not None:
        controller = active_controller(cluster)
        victim = controller if controller != gainer and soak.chance.random() < 0.6 else before[0]
        cluster.kill(victim)
        time.sleep(soak.chance.choice([0.0, 0.5]))
        cluster.signal(gainer, signal.SIGCONT)
        cluster.start(victim)
        hit = f"{hit}; node {victim} killed"
    finish_reassignment(soak, partition, before, after)
    return hit


def reassignment_loser_killed(soak: EdgeSoak) -> str | None:
    cluster = soak.cluster
    partition, before, after = _chosen_reassignment(soak)
    (loser,) = set(before) - set(after)
    when = soak.chance.choice([BEFORE, AFTER])
    cluster.arm(loser, Trap(call="rename", path=rf"/{WANDER}-{partition} -> \S+-delete$", when=when))
    cluster.reassign(WANDER, partition, after)
    hit = cluster.caught(loser)
    if hit is not None:
        restart(soak, loser)
    finish_reassignment(soak, partition, before, after)
    return hit


def finish_reassignment(soak: EdgeSoak, partition: int, before: list[int], after: list[int]) -> None:
    cluster = soak.cluster
    cluster.wait_up()
    wait_for(lambda: cluster.reassigned(WANDER, partition, after), 60, f"{WANDER}-{partition} is not at {after}")
    (loser,) = set(before) - set(after)
    name = f"{WANDER}-{partition}"
    wait_for(lambda: not cluster.folders(loser, name), 30, f"node {loser} keeps {cluster.folders(loser, name)}")


def away_and_back(soak: EdgeSoak) -> str | None:
    """A compacted replica leaves its node and comes back by copying; the node dies while it does."""
    cluster = soak.cluster
    partition = soak.chance.randrange(3)
    row = cluster.partitions(TABLE)[partition].replicas
    node = soak.chance.choice(row[1:])
    fewer = [replica for replica in row if replica != node]
    cluster.reassign(TABLE, partition, fewer)
    wait_for(lambda: cluster.reassigned(TABLE, partition, fewer), 60, "the replica does not leave")
    wait_for(lambda: not cluster.folders(node, f"{TABLE}-{partition}"), 30, "the replica's folder stays")
    soak.table.write(40)
    cluster.arm(node, Trap(call="write", path=rf"/{TABLE}-{partition}/\d+\.log$", when=AFTER))
    cluster.reassign(TABLE, partition, row)
    hit = cluster.caught(node)
    if hit is not None:
        restart(soak, node)
    cluster.wait_up()
    wait_for(lambda: cluster.reassigned(TABLE, partition, row), 60, "the replica does not come back")
    for _ in range(2):
        soak.table.write(60)
        time.sleep(0.7)
    return hit


# ---------------------------------------------------------------------------------------------- deletion and re-creation


def deletion_killed(soak: EdgeSoak, call: str, when: str) -> str | None:
    """A node dies at its folder of a deleted topic; the topic is made again before the node is back, or after."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    path = r"/(reborn|ledger)-\d+ -> \S+-delete$" if call == "rename" else r"/(reborn|ledger)-\d+\.\w+-delete$"
    cluster.arm(node, Trap(call=call, path=path, when=when, count=soak.chance.randrange(1, 4)))
    cluster.admin.delete_topics([Reborn.TOPIC, Reborn.LEDGER])
    hit = cluster.caught(node)
    at_once = soak.chance.random() < 0.5
    if hit is not None:
        cluster.processes[node].wait(20)
        if not at_once:
            cluster.start(node)
    soak.reborn.delete()
    soak.reborn.create()
    soak.reborn.fill()
    if hit is not None and at_once:
        cluster.start(node)
    cluster.wait_up()
    return hit


def reborn_while_down(soak: EdgeSoak) -> str | None:
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    cluster.kill(node)
    soak.reborn.delete()
    soak.reborn.create()
    soak.reborn.fill()
    old = cluster.folders(node, "reborn-*")
    cluster.start(node)
    cluster.wait_up()
    return f"node {node} still had {[path.name for path in old]}" if old else None


def pending_offsets(soak: EdgeSoak, *, coordinator_dies: bool) -> str | None:
    """A transaction holds offsets of a topic that is deleted and made again before the commit."""
    cluster = soak.cluster
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "pending", "log_level": 0, **CLIENT}
    )
    _insist(lambda: producer.init_transactions(20))
    producer.begin_transaction()
    consumer = soak.reborn.consumer()
    offsets = [TopicPartition(Reborn.TOPIC, partition, 20) for partition in range(2)]
    _insist(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20))
    consumer.close()
    soak.reborn.delete()
    hit = f"offsets of incarnation {soak.reborn.incarnation} pending when it was deleted"
    coordinator = None
    if coordinator_dies:
        with cluster.client() as client:
            _, _, coordinator = client.coordinator(Reborn.GROUP, GROUP, time.monotonic() + 20)
        cluster.kill(coordinator)
        cluster.start(coordinator)
        hit += f", coordinator {coordinator} killed"
    soak.reborn.create()
    _insist(lambda: producer.commit_transaction(20))
    soak.reborn.fill()
    cluster.wait_up()
    return hit


def _insist(call: Callable[[], object], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


# ------------------------------------------------------------------------------------------------------------ full disk


def full_disk(soak: EdgeSoak) -> str | None:
    """One directory is full while another's logs are compacted and synced as ever; then there is room again."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    small = str(cluster.data_dirs(node)[2])
    topic = f"packed-{soak.chance.randrange(10**9)}"
    config = {"cleanup_policy": "compact", "internal_segment_bytes": "8192", "min_compaction_lag_ms": "3600000"}
    cluster.create(topic, [[node]], **config)
    if cluster.places(node)[topic, 0][0] != small:
        cluster.move(node, topic, 0, small)
        finish_move(soak, node, topic, 0, small)
    _keep_one_outside(soak, node, small)
    _write_values(soak, topic, b"packed", 200, 400)
    position = cluster.log_size(node)
    cluster.fill(node)
    try:
        # Only now may the log on the full disk be compacted, and it is what the cleaner wants most.
        cluster.configure(topic, "min.compaction.lag.ms", "0")
        others = [where for where, (path, _) in cluster.places(node).items() if path != small]
        for _ in range(3):  # the first pass may come before the node knows the setting
            _assert_goes_on(soak, node, [where for where in others if where[0] == TABLE], CLEANER_CHECKPOINT)
        _assert_goes_on(soak, node, [where for where in others if where[0] == PLAIN], RECOVERY_POINT_CHECKPOINT)
        refusals = cluster.log_since(node, position).count("disk.filled")
    finally:
        cluster.free(node)
    cluster.delete(topic)
    return f"node {node}: {refusals} writes refused" if refusals else None


def _keep_one_outside(soak: EdgeSoak, node: int, small: str) -> None:
    """A partition of each checked topic lies in another directory."""
    cluster = soak.cluster
    for topic in (TABLE, PLAIN):
        places = cluster.places(node)
        mine = sorted(where for where in places if where[0] == topic)
        if all(places[where][0] == small for where in mine):
            target = str(cluster.data_dirs(node)[1])
            cluster.move(node, *mine[0], target)
            finish_move(soak, node, *mine[0], target)


def _assert_goes_on(soak: EdgeSoak, node: int, partitions: list[tuple[str, int]], checkpoint: str) -> None:
    """The offsets of all of them in their directories' checkpoints grow."""

    def offsets() -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for directory in soak.cluster.data_dirs(node)[:2]:
            for where, offset in read_offsets(DiskStorage(), f"{directory}/{checkpoint}").items():
                found[where.topic, where.partition] = offset
        return found

    before = offsets()

    def grown() -> bool:
        soak.table.write(5)
        now = offsets()
        return all(now.get(where, -1) > before.get(where, -1) for where in partitions)

    wait_for(grown, 15, f"node {node}: {checkpoint} of {partitions} stands still while another directory is full")


# ---------------------------------------------------------------------------------------------- at a write, and anywhere


def killed_at(soak: EdgeSoak, call: str, path: str) -> str | None:
    """A node dies at one of the writes that go on all the time."""
    cluster, node = soak.cluster, soak.chance.choice(list(soak.cluster.nodes))
    when, count = soak.chance.choice([BEFORE, AFTER]), soak.chance.randrange(1, 6)
    cluster.arm(node, Trap(call=call, path=path, when=when, count=count, action=TRAP_KILL))
    deadline = time.monotonic() + 20
    while cluster.sprung(node) is None and time.monotonic() < deadline:
        soak.table.write(10)
        time.sleep(0.2)
    hit = cluster.caught(node, 0)
    if hit is not None:
        restart(soak, node)
    cluster.wait_up()
    return hit


def anywhere(soak: EdgeSoak, kind: str) -> str | None:
    deadline = time.monotonic() + 10
    while not (pending := soak.in_flight()) and time.monotonic() < deadline:
        time.sleep(0.001)
    fault(soak.cluster, kind, soak.chance)
    soak.cluster.wait_up()
    return f"{pending} records in flight" if pending else None


def restart(soak: EdgeSoak, node: int) -> None:
    """Of a node that has killed itself."""
    soak.cluster.processes[node].wait(20)
    time.sleep(soak.chance.choice([0.0, 0.0, 0.5, 1.5]))
    soak.cluster.start(node)


DIES, HANGS, STOPS_ALL, FILLS = "dies", "hangs", "all die", "fills"
KINDS: dict[str, tuple[str, Fault]] = {
    "move: killed while copying": (DIES, partial(move_killed, step="copy", call="write")),
    "move: killed before the copy's rename": (DIES, partial(move_killed, step="future", call="rename")),
    "move: killed after the copy's rename": (DIES, partial(move_killed, step="future", call="rename", when=AFTER)),
    "move: killed before the source's rename": (DIES, partial(move_killed, step="source", call="rename")),
    "move: killed after the source's rename": (DIES, partial(move_killed, step="source", call="rename", when=AFTER)),
    "move: killed before the assignment": (DIES, partial(move_killed, step="assign", call="assign")),
    "move: killed before the assignment's answer": (DIES, partial(move_killed, step="assign", call="assigned")),
    "move: hung in the promotion": (HANGS, move_stopped),
    "move: the target fails": (DIES, move_target_fails),
    "move: truncated under it": (HANGS, move_and_truncation),
    "move: killed, then topic re-created": (DIES, move_then_reborn),
    "reassignment: new replica killed": (DIES, reassignment_gainer_killed),
    "reassignment: controller or leader killed": (HANGS, reassignment_other_killed),
    "reassignment: old replica killed": (DIES, reassignment_loser_killed),
    "reassignment: compacted replica away and back": (DIES, away_and_back),
    "deletion: killed before the rename": (DIES, partial(deletion_killed, call="rename", when=BEFORE)),
    "deletion: killed after the rename": (DIES, partial(deletion_killed, call="rename", when=AFTER)),
    "deletion: killed before the removal": (DIES, partial(deletion_killed, call="remove_tree", when=BEFORE)),
    "deletion: re-created while down": (DIES, reborn_while_down),
    "deletion: offsets pending": (DIES, partial(pending_offsets, coordinator_dies=False)),
    "deletion: offsets pending, coordinator killed": (DIES, partial(pending_offsets, coordinator_dies=True)),
    "full disk": (FILLS, full_disk),
    "transactions: killed at the state log": (
        DIES, partial(killed_at, call="write", path=r"/__transaction_state-\d+(\.\w+-future)?/\d+\.log$")
    ),
    "groups: killed at the offsets log": (
        DIES, partial(killed_at, call="write", path=r"/__consumer_offsets-\d+(\.\w+-future)?/\d+\.log$")
    ),
    "compaction: killed at the swap": (DIES, partial(killed_at, call="rename", path=r"/(table|ledger)-.*\.swap")),
    "any moment: killed": (DIES, partial(anywhere, kind=KILL)),
    "any moment: hung": (HANGS, partial(anywhere, kind=HANG)),
    "any moment: hung for long": (HANGS, partial(anywhere, kind=LONG_HANG)),
    "any moment: all killed": (STOPS_ALL, partial(anywhere, kind=ALL)),
}  # fmt: skip
"""Name -> what becomes of a node, and the fault."""
