"""Many members and many groups: fifty real clients in one group, and a thousand groups of ten on one node.

`pytest -m soak tests/coordinator/test_groups_soak.py -s` prints what it took. A run on a two-core machine that others
used too (2026-11-16) is in docs/groups.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from bench.process import cpu_seconds
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.model.errors import ErrorCode
from ottla.protocol.api import encode_request, response_class
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.generated.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.list_groups_request import ListGroupsRequest
from ottla.protocol.primitives import Message
from tests.coordinator.group_clients import GroupMember, Ledger, await_balance
from tests.coordinator.test_consumer_clients import PROTOCOLS, SETTINGS
from tests.robustness.server_process import ServerProcess
from tests.support.frames import RawConnection

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

GROUPS = 1_000
MEMBERS = 10
PARTITIONS = 20
PIPELINED = 200
TOPIC = "t"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as running:
        yield running


@pytest.fixture
def quick_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path, properties=SETTINGS) as running:
        yield running


@pytest.mark.parametrize("protocol", ["consumer", "cooperative"])
def test_fifty_members_come_and_go(quick_server: ServerProcess, protocol: str) -> None:
    server = quick_server
    address = f"127.0.0.1:{server.port}"
    create(address, TOPIC, 100)
    ledger = Ledger()
    members: list[GroupMember] = []
    took: list[str] = []
    try:
        for count in (10, 50):
            while len(members) < count:
                name = f"m{len(members)}"
                members.append(GroupMember(address, "g", TOPIC, name, ledger, **PROTOCOLS[protocol]))
            took.append(f"{count} members: {await_balance(ledger, members, 100, 180):.1f} s")
        for count in (25, 5):
            while len(members) > count:
                members.pop(0).close()
            took.append(f"down to {count}: {await_balance(ledger, members, 100, 180):.1f} s")
    finally:
        for member in members:
            member.close()
    print(protocol, *took, sep="; ")
    assert ledger.violations == []


def test_a_thousand_groups_of_ten(server: ServerProcess) -> None:
    """10,000 members join, settle and beat; then the node is killed, and all groups are there again."""
    create(f"127.0.0.1:{server.port}", TOPIC, PARTITIONS)
    idle_mb = server.rss_bytes() / 1e6
    with Driver(server.port) as driver:
        began = time.monotonic()
        rounds = driver.settle()
        settled_s = time.monotonic() - began
        grown_mb = server.rss_bytes() / 1e6 - idle_mb
        cpu = cpu_seconds(server.pid)
        began = time.monotonic()
        for _ in range(3):
            driver.beat(silently=True)
        beat_s = (time.monotonic() - began) / 3
        cpu = (cpu_seconds(server.pid) - cpu) / 3
        for members in driver.groups.values():
            owned = sorted(index for member in members.values() for index in member.partitions())
            assert owned == list(range(PARTITIONS))
            assert {len(member.partitions()) for member in members.values()} == {PARTITIONS // MEMBERS}
    server.kill()
    began = time.monotonic()
    server.start()
    with Driver(server.port) as again:
        again.groups = driver.groups
        again.beat(silently=True)
        loaded_s = time.monotonic() - began
        listed: Any = again.ask(ListGroupsRequest(types_filter=["consumer"], states_filter=["Stable"]), 5)
        assert len(listed.groups) == GROUPS
    print(
        f"{GROUPS} groups x {MEMBERS} members: settled in {settled_s:.1f} s ({rounds} rounds), {grown_mb:.0f} MB more; "
        f"10,000 heartbeats in {beat_s:.2f} s ({cpu:.2f} s of CPU); killed, loaded and all members answered in "
        f"{loaded_s:.1f} s"
    )
    assert grown_mb < 400
    assert beat_s < 5, "10,000 members that beat every five seconds need all of a core"


def create(address: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


class Member:
    def __init__(self) -> None:
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    def partitions(self) -> list[int]:
        return [index for topic in self.owned for index in topic.partitions]


class Driver:
    """All members of all groups on one connection, their heartbeats in flight by the hundred."""

    def __init__(self, port: int) -> None:
        self._connection = RawConnection("127.0.0.1", port, timeout=60)
        self._sent = 0
        self.groups = {f"group-{i}": {f"member-{j}": Member() for j in range(MEMBERS)} for i in range(GROUPS)}
        deadline = time.monotonic() + 30
        while self.ask(FindCoordinatorRequest("g", 0), 3).error_code or self.ask(ListGroupsRequest(), 4).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, request: Message, version: int) -> Any:
        self._send(request, version)
        return self._receive(response_class(request.API_KEY), version)

    def settle(self) -> int:
        """Beat until nobody's epoch and nobody's partitions change any more; how many rounds that took."""
        for rounds in range(1, 40):
            if not self.beat() and rounds > 3:
                return rounds
            time.sleep(0.2)
        raise AssertionError("the groups never settled")

    def beat(self, *, silently: bool = False) -> int:
        """Every member once; how many of them heard something new."""
        waiting: list[Member] = []
        changed = 0
        for group, members in self.groups.items():
            for name, member in members.items():
                self._send(self._request(group, name, member, silently=silently), 1)
                waiting.append(member)
                if len(waiting) >= PIPELINED:
                    changed += self._take(waiting)
        return changed + self._take(waiting)

    def _take(self, waiting: list[Member]) -> int:
        changed = 0
        for member in waiting:
            answer = self._receive(ConsumerGroupHeartbeatResponse, 1)
            assert answer.error_code == ErrorCode.NONE, answer
            changed += answer.member_epoch != member.epoch or answer.assignment is not None
            member.epoch = answer.member_epoch
            if answer.assignment is not None:
                member.owned = [TopicPartitions(t.topic_id, t.partitions) for t in answer.assignment.topic_partitions]
        waiting.clear()
        return changed

    def _request(self, group: str, name: str, member: Member, *, silently: bool) -> ConsumerGroupHeartbeatRequest:
        joins = member.epoch == 0
        request = ConsumerGroupHeartbeatRequest(group, name, member.epoch, None, None, 60_000 if joins else -1)
        request.subscribed_topic_names = [TOPIC] if joins else None
        request.subscribed_topic_regex = request.server_assignor = None
        request.topic_partitions = None if silently else member.owned
        return request

    def _send(self, request: Message, version: int) -> None:
        self._sent += 1
        self._connection.send_raw(b"".join(bytes(piece) for piece in encode_request(request, version, self._sent, "d")))

    def _receive(self, kind: type[Message], version: int) -> Any:
        frame = self._connection.read_frame()
        assert frame is not None
        return kind.decode(frame, 5 if version >= kind.FLEXIBLE_FROM else 4, version)[0]
