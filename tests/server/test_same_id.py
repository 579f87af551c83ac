"""Two servers with one id: the second waits while the first lives, and the first ends when it has lost its id."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.metadata.publisher import MetadataPublisher
from ottla.model.errors import ErrorCode, KafkaError
from ottla.server.cluster.registration import Registration
from tests.quorum.members import Member, running, until
from tests.support.ports import free_ports

CONTROLLER = 100
SESSION_MS = "5000"
"""A moment in which the machine stands still is shorter."""


class BrokerMember(Member):
    """A broker without a controller: `name` tells two of one id apart."""

    def __init__(self, directory: Path, node_id: int, controller: int, port: int) -> None:
        super().__init__(
            directory,
            node_id,
            {CONTROLLER: controller, node_id: port},
            **{
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{controller}",
                "broker.session.timeout.ms": SESSION_MS,
                "broker.heartbeat.interval.ms": "300",
            },
        )


def test_a_broker_whose_id_went_to_another_server_ends(tmp_path: Path) -> None:
    """It hung for longer than its session. Woken up it would lead what the other one leads, in the same epoch."""
    controller_port, first_port, second_port = free_ports(3)
    controller = Member(
        tmp_path / "controller", CONTROLLER, {CONTROLLER: controller_port}, **{"broker.session.timeout.ms": SESSION_MS}
    )
    first = BrokerMember(tmp_path / "first", 1, controller_port, first_port)
    second = BrokerMember(tmp_path / "second", 1, controller_port, second_port)
    for member in (controller, first, second):
        member.format()
    with running([controller, first]):
        until(lambda: "node.started" in first.log())
        with running([second]):
            until(lambda: "registration.delayed" in second.log())
            assert "node.started" not in second.log()
            first.send(signal.SIGSTOP)
            until(lambda: "node.started" in second.log())
            first.send(signal.SIGCONT)
            until(lambda: not first.running)
            assert first.process is not None
            assert first.process.returncode == 1
            assert "another server has registered as broker 1 of this cluster" in first.log()
            assert second.running


def test_no_heartbeat_that_fails_is_the_last() -> None:
    class Controller:
        def __init__(self) -> None:
            self.asked = 0
            self.enough = asyncio.Event()

        async def submit(self, *_: Any, **__: Any) -> Any:
            self.asked += 1
            if self.asked == 6:
                self.enough.set()
            if self.asked > 1:
                raise (KafkaError(ErrorCode.UNSUPPORTED_VERSION), ValueError("a bug"))[self.asked % 2]
            return SimpleNamespace(error_code=0, is_fenced=False)

    async def beat() -> None:
        controller = Controller()
        config = SimpleNamespace(node_id=1, broker_session_timeout_ms=100, broker_heartbeat_interval_ms=1)
        node: Any = SimpleNamespace(config=config)
        logs: Any = SimpleNamespace(directories=[])
        identity: Any = None
        registration = Registration(node, controller, MetadataPublisher(), identity, logs, incarnation=bytes(16))  # type: ignore[arg-type]
        await registration.unfence()
        registration.beat_now()
        async with asyncio.timeout(30):
            await controller.enough.wait()
        registration.stop()

    asyncio.run(beat())
