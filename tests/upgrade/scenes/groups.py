"""Groups of every kind, each with what its coordinator keeps: members that stay, offsets, deliveries, a topology."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets
from ottla.client.share_consumer import ACCEPT, REJECT, RELEASE, ShareConsumer
from ottla.client.share_groups import share_offsets
from ottla.protocol.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from ottla.protocol.generated.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.coordinator.streams_topologies import word_count
from tests.upgrade.rows import START_MS, Record, send

TOPIC = "codec-none"
SHARED = "shared"
STREAMS = {"source": "lines", "repartition": "words-repartition", "changelog": "words-changelog"}
ACCEPTED, REJECTED, RELEASED = (0, 1, 2, 5), (6,), (3, 4)


def record(cluster: Cluster, servers: str) -> dict[str, Any]:
    """What the share group must deliver next: offset -> number of the delivery."""
    commit_offsets(cluster, "simple", {(TOPIC, 0): 3, (TOPIC, 1): 4})
    for protocol in ("classic", "consumer"):
        _member(servers, protocol, leaves=True)
        _member(servers, protocol, leaves=False)
    _streams(cluster)
    return _share(cluster, servers)


def offsets_in(producer: Producer, servers: str, group: str, topic: str, offset: int) -> None:
    """A group's offset as part of the open transaction of `producer`."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 3})
    place = TopicPartition(topic, 0, offset, "in a transaction")
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
    consumer.close()


def _member(servers: str, protocol: str, *, leaves: bool) -> None:
    """A group whose member commits; a static member that does not leave is still in the group at the stop."""
    settings: dict[str, Any] = {"group.id": f"{protocol}-{'empty' if leaves else 'static'}", "group.protocol": protocol}
    if protocol == "classic":
        settings |= {"session.timeout.ms": 1_800_000, "max.poll.interval.ms": 1_800_000}
    if not leaves:
        settings["group.instance.id"] = f"{protocol}-instance"
    consumer = Consumer(
        {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 3}
        | settings
    )
    consumer.subscribe([TOPIC])
    count, deadline = 0, time.monotonic() + 60
    while count < 20 and time.monotonic() < deadline:
        count += sum(message.error() is None for message in consumer.consume(20, 0.5))
    assert count == 20, f"{settings}: {count} records"
    places = [TopicPartition(TOPIC, 0, 6, "half of it"), TopicPartition(TOPIC, 1, 9)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def _share(cluster: Cluster, servers: str) -> dict[str, Any]:
    send(servers, SHARED, [Record(b"%d" % n, b"job %d" % n, START_MS + n) for n in range(12)])
    member = ShareConsumer(cluster, "sharers", SHARED)
    taken: dict[int, Any] = {}
    deadline = time.monotonic() + 60
    while len(taken) < 8 and time.monotonic() < deadline:
        taken |= {one.offset: one for one in member.poll(8 - len(taken))}
    marks = [(ACCEPTED, ACCEPT), (REJECTED, REJECT), (RELEASED, RELEASE)]
    # In rising order: a ShareAcknowledge with any other order is refused.
    for offset, kind in sorted((offset, kind) for offsets, kind in marks for offset in offsets):
        member.acknowledge(taken[offset], kind)
    member.close()  # what was taken and not acknowledged goes back
    assert {row.start_offset for row in share_offsets(cluster, "sharers").values()} == {3}
    done = set(ACCEPTED) | set(REJECTED)
    return {str(offset): 2 if offset in taken else 1 for offset in range(12) if offset not in done}


def streams_heartbeat(cluster: Cluster, member: str, epoch: int, instance: str | None = None) -> Any:
    first = epoch == 0
    request = StreamsGroupHeartbeatRequest(
        "streamers", member, epoch, instance_id=instance, rebalance_timeout_ms=60_000 if first else -1,
        topology=word_count(**STREAMS) if first else None, process_id="process" if first else None,
        active_tasks=[] if first else None, standby_tasks=[] if first else None, warmup_tasks=[] if first else None,
        client_tags=[] if first else None,
    )  # fmt: skip
    return cluster.coordinator_call(
        "streamsGroupHeartbeat", "streamers", request, StreamsGroupHeartbeatResponse, lambda a: a.error_code
    )


def _streams(cluster: Cluster) -> None:
    """A member that brings a topology, makes its internal topics, commits and leaves."""
    epoch, deadline = 0, time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = streams_heartbeat(cluster, "streams-member", epoch)
        assert answer.error_code == 0, answer.error_message
        epoch = answer.member_epoch
        if answer.active_tasks:
            break
        time.sleep(0.2)
    else:
        raise AssertionError(f"the streams group has no tasks: {answer}")
    streams_heartbeat(cluster, "streams-member", -1)
    commit_offsets(cluster, "streamers", {("lines", 0): 2})
