"""OAUTHBEARER with the real clients: tokens from a token endpoint, checked by keys from a JWKS endpoint on loopback.

The same tokens are shown to Ottla and to Apache Kafka, and each that is not good is refused by both with the same code.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, Producer
from joserfc import jwk, jwt

from ottla.broker.login.sasl_gate import SaslGate, State
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.interop.ottla_server import OttlaServer
from tests.security.secured import jaas
from tests.security.session import Session
from tests.support.apache_kafka import TEST_JVM, ApacheKafka
from tests.support.kafka_tools import ConsoleProducer, TopicCommand, jvm_command
from tests.support.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
KEY = jwk.RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
STRANGER = jwk.RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
SASL_AUTHENTICATION_FAILED = 58
TOPIC = "by-token"


def token(key: Any = KEY, **claims: Any) -> str:
    now = int(time.time())
    facts = {"iss": "us", "aud": "kafka", "sub": "alice", "scope": "all", "iat": now, "exp": now + 300, **claims}
    return jwt.encode({"alg": "RS256", "kid": "k1"}, facts, key)


def unsigned() -> str:
    header = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    return f"{header}.{token().split('.')[1]}."


BAD: dict[str, Callable[[], str]] = {
    "expired": lambda: token(exp=int(time.time()) - 3600, iat=int(time.time()) - 7200),
    "audience": lambda: token(aud="others"),
    "issuer": lambda: token(iss="them"),
    "alg none": unsigned,
    "another's signature": lambda: token(STRANGER),
}


class Endpoint(BaseHTTPRequestHandler):
    """/jwks has the keys, /token gives a token to whoever asks."""

    def do_GET(self) -> None:
        self._answer({"keys": [KEY.as_dict(private=False)]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer({"access_token": token(), "token_type": "Bearer", "expires_in": 300})

    def _answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def properties(endpoint: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": jaas(MODULE),
        "sasl.oauthbearer.jwks.endpoint.url": f"{endpoint}/jwks",
        "sasl.oauthbearer.expected.issuer": "us",
        "sasl.oauthbearer.expected.audience": "kafka",
    }


@pytest.fixture(scope="module", params=["ottla", "apache"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> Iterator[str]:
    """The address of the SASL listener."""
    if request.param == "apache":
        request.getfixturevalue("requires_apache_kafka")
    kind = OttlaServer if request.param == "ottla" else ApacheKafka
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint}/jwks"
    running = kind(tmp_path_factory.mktemp(request.param), jvm_options=(*TEST_JVM, allowed))
    port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{running.port},SASL_PLAINTEXT://127.0.0.1:{port}"
    protocols = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    running.properties |= {
        **properties(endpoint),
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{running.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": protocols,
    }
    if request.param == "ottla":
        running.properties["ottla.sasl.oauthbearer.allowed.urls"] = f"{endpoint}/jwks"
    else:
        running.properties["listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"] = VALIDATOR
    try:
        running.start()
        yield f"127.0.0.1:{port}"
    finally:
        running.kill()


def librdkafka(server: str, text: Callable[[], str], **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": server, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (text(), time.time() + 300), **more,
    }  # fmt: skip


def produced(config: dict[str, Any]) -> None:
    producer = Producer(config)
    failures: list[Any] = []
    producer.produce(TOPIC, b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failures


def test_librdkafka(server: str, endpoint: str) -> None:
    produced(librdkafka(server, token))
    produced(
        {
            "bootstrap.servers": server, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "a", "sasl.oauthbearer.client.secret": "b",
            "sasl.oauthbearer.token.endpoint.url": f"{endpoint}/token",
        }
    )  # fmt: skip
    for name, bad in BAD.items():
        errors: list[KafkaError] = []
        client = Producer(librdkafka(server, bad, error_cb=errors.append))
        deadline = time.monotonic() + 20
        while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            assert time.monotonic() < deadline, (name, errors)
            client.poll(0.1)
        assert not any(bad()[:40] in error.str() for error in errors), name


class Provider(AbstractTokenProvider):
    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text()


def test_aiokafka(server: str) -> None:
    async def send(text: Callable[[], str]) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=server, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(text),
        )  # fmt: skip
        try:
            await producer.start()
            return (await producer.send_and_wait(TOPIC, b"x")).offset
        finally:
            await producer.stop()

    assert asyncio.run(send(token)) >= 0
    # aiokafka takes the challenge for a success and its next request is refused: Kafka answers that one with an error
    # and closes, which it waits over; Ottla closes.
    with pytest.raises((AioKafkaError, TimeoutError)):
        asyncio.run(asyncio.wait_for(send(BAD["expired"]), 3))


def test_the_code_that_each_is_told(server: str) -> None:
    for name, bad in BAD.items():
        with Session(int(server.rpartition(":")[2])) as session:
            assert session.handshake("OAUTHBEARER").error_code == 0
            first = session.authenticate(b"n,,\x01auth=Bearer " + bad().encode() + b"\x01\x01")
            assert (first.error_code, json.loads(bytes(first.auth_bytes))["status"]) == (0, "invalid_token"), name
            assert session.authenticate(b"\x01").error_code == SASL_AUTHENTICATION_FAILED, name


def java(main: str, *words: str, allowed: str, stdin: str = "") -> str:
    command = jvm_command((*TEST_JVM, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}"), main, *words)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("server", ["ottla"], indirect=True)
def test_java(server: str, endpoint: str, tmp_path: Path) -> None:
    def config(url: str) -> str:
        path = tmp_path / f"{abs(hash(url))}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f'sasl.jaas.config={MODULE} required clientId="a" clientSecret="b";\n'
            f"sasl.login.callback.handler.class={LOGIN}\nsasl.oauthbearer.token.endpoint.url={url}\n"
            "default.api.timeout.ms=20000\nrequest.timeout.ms=15000\n"
        )
        return str(path)

    url = f"{endpoint}/token"
    words = ("--bootstrap-server", server, "--command-config")
    java(ConsoleProducer, *words, config(url), "--topic", TOPIC, stdin="from java\n", allowed=url)
    listed = java(TopicCommand, *words, config(url), "--list", allowed=url)
    assert TOPIC in listed.split(), listed
    (tmp_path / "bad").write_text(BAD["audience"]())
    url = f"file://{tmp_path}/bad"
    refused = java(TopicCommand, *words, config(url), "--list", allowed=url)
    assert "SaslAuthenticationException" in refused, refused


def test_an_address_outside_the_list_does_not_start(endpoint: str) -> None:
    listeners = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    }
    with pytest.raises(StartupError, match="allowed"):
        Broker(properties={**properties(endpoint), **listeners}).start()


def test_librdkafka_logs_in_again_on_the_same_connection(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """connections.max.reauth.ms: no connection is lost over several sessions (KIP-368)."""
    gates: list[SaslGate] = []
    again: list[SaslGate] = []
    first, handshake, evaluate = SaslGate.__init__, SaslGate._handshake, SaslGate._evaluate

    def opened(self: SaslGate, sasl: Any) -> None:
        first(self, sasl)
        gates.append(self)

    def shook(self: SaslGate, connection: Any, frame: Any) -> None:
        if connection.authenticated:
            again.append(self)
        handshake(self, connection, frame)

    def patient(self: SaslGate, connection: Any, token: bytes) -> tuple[bytes, int]:
        """The client is told 1.5 s and comes at nine tenths of it; a machine that is busy may be later."""
        answer = evaluate(self, connection, token)
        if self._expires_at is not None and self._server is None:
            self._expires_at += 30_000
        return answer

    monkeypatch.setattr(SaslGate, "__init__", opened)
    monkeypatch.setattr(SaslGate, "_handshake", shook)
    monkeypatch.setattr(SaslGate, "_evaluate", patient)
    settings = {
        **properties(endpoint),
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "ottla.sasl.oauthbearer.allowed.urls": f"{endpoint}/jwks",
        "connections.max.reauth.ms": "1500",
    }
    with Broker(properties=settings) as broker:
        producer = Producer(librdkafka(f"127.0.0.1:{broker.node.ports['SASL_PLAINTEXT']}", token))
        failures: list[Any] = []
        deadline = time.monotonic() + 60
        while len(again) < 4:
            assert time.monotonic() < deadline, "it logged in again"
            producer.produce(TOPIC, b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
            producer.flush(5)
            time.sleep(0.1)
        assert not failures
        # A change of the node's settings makes the login's rules anew; the keys are still known.
        change = AlterConfigsResource(4, "1", [AlterableConfig("log.cleaner.threads", 0, "1")])
        with Session(broker.node.ports["PLAINTEXT"]) as admin:
            assert admin.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0
        produced(librdkafka(f"127.0.0.1:{broker.node.ports['SASL_PLAINTEXT']}", token))
        assert len(gates) <= 6, "and not by a new connection each time"
        assert all(gate.state is not State.FAILED for gate in gates)
