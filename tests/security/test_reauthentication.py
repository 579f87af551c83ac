"""connections.max.reauth.ms (KIP-368) with real clients: Java logs in again on its connection; aiokafka, which cannot,
loses the connection when its session ends, comes back and loses nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.broker.connection import Connection
from ottla.broker.login.sasl_gate import SaslGate
from ottla.testing import Broker
from tests.security.secured import PASSWORD, SCRAM_MODULE, USERS, address, jaas, plain_users

ProducerPerformance = "org.apache.kafka.tools.ProducerPerformance"
SESSION_MS = 1500
Tool = Callable[..., subprocess.CompletedProcess[str]]


class Seen:
    """What the gate of the listener saw."""

    def __init__(self) -> None:
        self.connections = 0
        self.again = 0
        self.ended = 0
        self.patience_ms = 0.0
        """How much later than it said the gate ends a session: clients log in again at 85 to 95 % of it, and what they sent
        just before may wait for longer than the rest on a busy machine."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()
    made, handshake, refuse = SaslGate.__init__, SaslGate._handshake, Connection.refuse
    evaluate = SaslGate._evaluate

    def opened(self: SaslGate, sasl: Any) -> None:
        found.connections += 1
        made(self, sasl)

    def shook(self: SaslGate, connection: Any, frame: Any) -> None:
        found.again += bool(connection.authenticated)
        handshake(self, connection, frame)

    def refused(self: Connection, reason: str, *words: Any) -> None:
        found.ended += "session has ended" in reason
        refuse(self, reason, *words)

    def evaluated(self: SaslGate, connection: Any, token: bytes) -> tuple[bytes, int]:
        answer = evaluate(self, connection, token)
        if self._expires_at is not None and self._server is None:
            self._expires_at += found.patience_ms
        return answer

    monkeypatch.setattr(SaslGate, "_evaluate", evaluated)
    monkeypatch.setattr(SaslGate, "__init__", opened)
    monkeypatch.setattr(SaslGate, "_handshake", shook)
    monkeypatch.setattr(Connection, "refuse", refused)
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users(USERS),
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with Broker(properties=settings) as running:
        admin = AdminClient({"bootstrap.servers": address(running, "PLAINTEXT")})
        for name in ("by-aiokafka", "by-java"):
            admin.create_topics([NewTopic(name, 1)])[name].result(10)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", info, PASSWORD.encode())])[
            "alice"
        ].result(10)
        yield running


@pytest.mark.timeout(180)
def test_aiokafka_comes_back_and_loses_nothing(broker: Broker, seen: Seen) -> None:
    security = {
        "bootstrap_servers": address(broker, "SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }

    async def exchange() -> tuple[list[bytes], list[bytes]]:
        producer = AIOKafkaProducer(**security, enable_idempotence=True, retry_backoff_ms=20)
        consumer = AIOKafkaConsumer("by-aiokafka", **security, retry_backoff_ms=20, auto_offset_reset="latest")
        await producer.start()
        await consumer.start()
        sent: list[bytes] = []
        got: list[bytes] = []
        try:
            await consumer.seek_to_end()
            deadline = time.monotonic() + 2.2 * SESSION_MS / 1000
            while time.monotonic() < deadline:
                sent.append(str(len(sent)).encode())
                await producer.send_and_wait("by-aiokafka", sent[-1])
                await asyncio.sleep(0.05)
            while len(got) < len(sent):
                got.append((await asyncio.wait_for(consumer.getone(), 30)).value)
        finally:
            await consumer.stop()
            await producer.stop()
        return sent, got

    sent, got = asyncio.run(exchange())
    assert got == sent
    assert seen.ended >= 1, "a session came to its end"
    assert seen.connections > 2


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_java_logs_in_again_on_the_same_connection(
    broker: Broker, seen: Seen, kafka_tool: Tool, tmp_path: Path
) -> None:
    seen.patience_ms = SESSION_MS  # still within the four seconds of the run
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={jaas(SCRAM_MODULE, username='alice', password=PASSWORD)}\n"
    )
    for records in (120, 240, 900):  # it catches up after a stall, so a run of four seconds may be one burst at its end
        seen.connections = 0
        done = kafka_tool(
            ProducerPerformance, "--topic", "by-java", "--num-records", str(records), "--throughput", "30",
            "--record-size", "50", "--bootstrap-server", address(broker, "SASL_PLAINTEXT"), "--command-config", str(config),
        )  # fmt: skip
        assert f"{records} records sent" in done.stdout, done.stdout + done.stderr
        if seen.again >= 2:
            break
    assert seen.again >= 2, "it logged in again"
    assert seen.ended == 0
    assert seen.connections <= 4, "and not by a new connection each time"
