"""New certificates while clients write: nothing fails, connections that are up stay up, new ones see the new certificate."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from ottla.env.config.load import load
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.security import tls
from ottla.security.tls import TlsSource
from ottla.testing import Broker
from tests.security.secured import Certificates
from tests.security.session import Session

PASSWORD = "store-p4ss"


def pkcs12_store(pem: Path) -> bytes:
    text = pem.read_bytes()
    chain = x509.load_pem_x509_certificates(text)
    key: Any = load_pem_private_key(text, None)
    return pkcs12.serialize_key_and_certificates(
        b"s", key, chain[0], chain[1:], BestAvailableEncryption(PASSWORD.encode())
    )


class Writers:
    """Clients that write all the time, one of which begins anew again and again."""

    def __init__(self, bootstrap: str, authority: Path) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority),
            "linger.ms": 1,
            "message.timeout.ms": 30_000,
            "error_cb": self._on_error,
        }
        self._over = threading.Event()
        self.delivered = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=run) for run in (self._stay, self._come_and_go)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _on_error(self, error: Any) -> None:
        self.failures.append(f"client: {error}")

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failures.append(f"delivery: {error}")

    def _write(self, producer: Producer, rounds: int) -> None:
        for _ in range(rounds):
            if self._over.is_set():
                break
            for _ in range(20):
                producer.produce("t", b"x" * 500, on_delivery=self._on_delivery)
            producer.poll(0.01)
        if producer.flush(30):
            self.failures.append("not everything was written")

    def _stay(self) -> None:
        self._write(Producer(self._settings), 1_000_000)

    def _come_and_go(self) -> None:
        while not self._over.is_set():
            self._write(Producer(self._settings), 5)


def serial(port: int, context: ssl.SSLContext) -> int:
    with Session(port, context=context) as session:
        return _serial(session)


def _serial(session: Session) -> int:
    assert isinstance(session.socket, ssl.SSLSocket)
    return x509.load_der_x509_certificate(session.socket.getpeercert(binary_form=True) or b"").serial_number


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


@pytest.mark.timeout(180)
def test_certificates_change_under_load(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    store = tmp_path / "server.p12"

    def renew() -> None:
        fresh = tmp_path / "fresh.p12"
        fresh.write_bytes(pkcs12_store(certificates.issue("server")))
        fresh.rename(store)

    def new_pem() -> None:
        with Session(port, context=context) as admin:
            changes = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates.issue("server"))}
            values = [AlterableConfig(f"listener.name.ssl.{name}", 0, value) for name, value in changes.items()]
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", values)])
            answer = admin.ask(request, 1).responses[0]
            assert answer.error_code == 0, answer

    renew()
    settings = {
        "listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        # JKS is what Kafka takes it for when nothing is said; Java reads PKCS12 under that name too.
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
        "ssl.allow.dn.changes": "true",  # trustme makes one up for each
    }
    context = ssl.create_default_context(cafile=str(certificates.authority_file))
    with Broker(properties=settings) as broker:
        port = broker.node.ports["SSL"]
        with Session(port, context=context) as old:
            assert old.ask(CreateTopicsRequest([CreatableTopic("t", 2, 1)], 10_000), 5).topics[0].error_code == 0
            first = _serial(old)
            seen = [first]
            with Writers(f"127.0.0.1:{port}", certificates.authority_file) as writers:
                until(lambda: writers.delivered > 100)
                for change in (renew, renew, new_pem):
                    before = writers.delivered
                    change()
                    until(lambda: serial(port, context) != seen[-1])
                    seen.append(serial(port, context))
                    until(lambda before=before: writers.delivered > before + 100)
                    assert old.ask(MetadataRequest([]), 9) is not None
                    assert _serial(old) == first
            assert not writers.failures
            assert len(set(seen)) == 4


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = Certificates(tmp_path)
    path = certificates.issue("server")
    config = load(
        {
            "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093", "inter.broker.listener.name": "SSL",
            "listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM", "ssl.keystore.location": str(path),
            "ssl.allow.dn.changes": "true",
        }
    )  # fmt: skip
    now = 0.0
    problems: list[str] = []
    source = TlsSource(config, client_auth=False, monotonic_ms=lambda: now, on_problem=problems.append)
    made: list[bytes] = []
    real = tls.server_context

    def slow(*words: Any, **named: Any) -> ssl.SSLContext:
        made.append(path.read_bytes())
        context = real(*words, **named)
        if len(made) == 1:
            certificates.issue("server")
        return context

    monkeypatch.setattr(tls, "server_context", slow)
    certificates.issue("server")
    for _ in range(3):
        now += 2000
        source.context()
    assert not problems
    assert made[-1] == path.read_bytes(), "the last one is in force"
    assert len(made) == 2, "and is not read again and again"
