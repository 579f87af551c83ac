"""Controllers as real processes, Ottla's or Apache Kafka's own, and their views of the quorum.

If the machine stalls for some seconds, the voters elect a new leader. So a test looks for the leader each time it needs
the leader, or gives the quorum UNHURRIED timeouts where the leader must stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ottla.model.ids import METADATA_TOPIC
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.primitives import Message
from ottla.runtime.node_client import NodeClient, NodeUnavailable
from tests.robustness.server_process import COMMAND, environment, ottla, write_properties
from tests.support.apache_kafka import TEST_JVM
from tests.support.kafka_tools import jvm_command
from tests.support.ports import free_ports

CLUSTER_ID = "b2t0bGEtcXVvcnVtLXRlc3"
UNHURRIED = {"controller.quorum.fetch.timeout.ms": "60000"}
NOT_CONTROLLER = 41
INVALID_REPLICATION_FACTOR = 38


def controller_properties(directory: Path, node_id: int, ports: dict[int, int], *, dynamic: bool) -> dict[str, str]:
    if dynamic:
        quorum = {"controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports.values())}
    else:
        quorum = {"controller.quorum.voters": ",".join(f"{key}@127.0.0.1:{port}" for key, port in ports.items())}
    return {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://127.0.0.1:{ports[node_id]}",
        "advertised.listeners": f"CONTROLLER://127.0.0.1:{ports[node_id]}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / "data"),
        **quorum,
    }


class Member:
    """A controller process with a folder of its own."""

    def __init__(
        self, directory: Path, node_id: int, ports: dict[int, int], *, dynamic: bool = False, **more: str
    ) -> None:
        self.directory = directory
        self.node_id = node_id
        self.port = ports[node_id]
        directory.mkdir(parents=True, exist_ok=True)
        properties = {**controller_properties(directory, node_id, ports, dynamic=dynamic), **more}
        self.properties = write_properties(directory / "server.properties", properties)
        self.process: subprocess.Popen[bytes] | None = None

    def format(self, *arguments: str) -> None:
        done = ottla("storage", "format", "-t", CLUSTER_ID, "-c", self.properties, *arguments)
        assert done.returncode == 0, done.stderr

    def command(self) -> list[str]:
        return [*COMMAND, "server", "start", str(self.properties)]

    def start(self) -> None:
        with (self.directory / "log").open("ab") as output:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment()
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL, timeout: float = 30) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            os.kill(process.pid, signal.SIGCONT)
            process.send_signal(number)
        return process.wait(timeout)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask(self, request: Message, *, timeout_ms: float = 30_000, version: int | None = None) -> Any:
        """Send a request on a new connection; None without a response."""

        async def ask() -> Any:
            client = NodeClient("127.0.0.1", self.port, client_id="test", connect_timeout_ms=timeout_ms)
            try:
                return await client.send(request, timeout_ms=timeout_ms, version=version)
            except NodeUnavailable:
                return None
            finally:
                client.close()

        return asyncio.run(ask())

    def describe(self) -> Any:
        """The metadata partition as the leader sees it; None from a member that does not lead."""
        request = DescribeQuorumRequest([TopicData(METADATA_TOPIC, [PartitionData(0)])])
        response = self.ask(request, timeout_ms=2_000)
        if response is None or response.error_code or not response.topics:
            return None
        partition = response.topics[0].partitions[0]
        return None if partition.error_code else partition

    def create_topic(self, name: str, *, check_only: bool = True) -> int | None:
        """The error code. Without brokers, only the active controller returns 38 (INVALID_REPLICATION_FACTOR)."""
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], timeout_ms=5_000, validate_only=check_only)
        response = self.ask(request)
        return None if response is None else response.topics[0].error_code


class KafkaMember(Member):
    """Apache Kafka's own controller on the same files and settings."""

    def command(self) -> list[str]:
        return jvm_command(TEST_JVM, "kafka.Kafka", str(self.properties), log_level="warn")


def until(condition: Callable[[], Any], timeout: float = 45) -> Any:
    """The first true value of the condition; AssertionError after the timeout."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def view_of(members: list[Member]) -> tuple[Member, Any] | None:
    """The leader and its view of the quorum; None without a leader."""
    for member in members:
        view = member.describe() if member.running else None
        if view is not None:
            return member, view
    return None


def leader_of(members: list[Member]) -> Any:
    leader_view = view_of(members)
    return None if leader_view is None else leader_view[0]


def caught_up(members: list[Member]) -> tuple[Member, Any] | None:
    """As `view_of`, once every voter has everything that is committed."""
    leader_view = view_of(members)
    if leader_view is None:
        return None
    _, view = leader_view
    lowest = min(voter.log_end_offset for voter in view.current_voters)
    return leader_view if 0 < view.high_watermark <= lowest else None


def active_of(members: list[Member]) -> Member | None:
    """The active controller, once every other member returns NOT_CONTROLLER."""
    codes = [member.create_topic("t") for member in members]
    if sorted(map(str, codes)) != sorted(map(str, [INVALID_REPLICATION_FACTOR] + [NOT_CONTROLLER] * (len(codes) - 1))):
        return None
    return members[codes.index(INVALID_REPLICATION_FACTOR)]


@contextlib.contextmanager
def running(members: list[Member]) -> Iterator[list[Member]]:
    try:
        for member in members:
            member.start()
        yield members
    except BaseException:
        for member in members:
            print(f"---- {member.node_id}\n{member.log()[-6000:]}")
        raise
    finally:
        for member in members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.end()


def static_quorum(directory: Path, count: int = 3, **more: str) -> list[Member]:
    ports = dict(zip(range(1, count + 1), free_ports(count), strict=True))
    members = [Member(directory / str(node_id), node_id, ports, **more) for node_id in ports]
    for member in members:
        member.format()
    return members
