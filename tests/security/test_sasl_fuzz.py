"""Fuzzing of the SASL exchange: made-up bytes at every step. Nobody gets in, nothing breaks, the server goes on.

The mechanisms are driven directly (fast, most cases) and through a listener (the frames around them). 2,000 cases in the
normal run, 100,000 with `make soak`.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable

import pytest

from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.primitives import DecodeError
from ottla.security.oauthbearer import BearerToken, OAuthBearerServer, TokenRules, validate_token
from ottla.security.plain import PlainServer
from ottla.security.sasl import SaslFailure, SaslServer
from ottla.security.scram import ScramClient, ScramServer, ScramUser, new_credential
from ottla.testing import Broker
from tests.security.secured import PASSWORD, USERS, plain_users
from tests.security.session import Closed, Session

CREDENTIAL = new_credential("SCRAM-SHA-256", PASSWORD, b"s" * 16)


def scram_server() -> SaslServer:
    known = {"alice": ScramUser(CREDENTIAL, "alice")}
    return ScramServer("SCRAM-SHA-256", lambda name, _: known.get(name), lambda: "server-nonce")


def bearer_server() -> SaslServer:
    def validate(token: str) -> BearerToken:
        return validate_token(token, TokenRules(keys=None), 0)

    return OAuthBearerServer(validate, lambda _reason: None)


SERVERS: dict[str, Callable[[], SaslServer]] = {
    "PLAIN": lambda: PlainServer({"alice": PASSWORD.encode()}),
    "SCRAM": scram_server,
    "OAUTHBEARER": bearer_server,
}


def conversations(chance: random.Random) -> tuple[str, list[bytes]]:
    """A mechanism and what a client with a wrong password, or none, might send: good messages, mutated."""
    name = chance.choice(list(SERVERS))
    if name == "PLAIN":
        messages = [f"\0alice\0{chance.random()}".encode()]
    elif name == "SCRAM":
        messages = list(chance.choice(SCRAM_MESSAGES))
    else:
        messages = [b"n,,\x01auth=Bearer a.b.c\x01\x01", b"\x01"]
    return name, [mutated(chance, message) for message in messages]


def scram_messages(password: str) -> tuple[bytes, bytes]:
    client = ScramClient("SCRAM-SHA-256", "alice", password, "client-nonce")
    final = client.respond(b"r=client-nonceserver-nonce,s=c3Nzc3Nzc3Nzc3Nzc3Nzcw==,i=4096")
    return client.first(), final or b""


SCRAM_MESSAGES = [scram_messages(f"wrong-{number}") for number in range(8)]


def mutated(chance: random.Random, message: bytes) -> bytes:
    data = bytearray(message)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 8))):
        kind = chance.randrange(5)
        at = chance.randrange(len(data) + 1)
        if kind == 0 and data:
            data[at % len(data)] = chance.randrange(256)
        elif kind == 1:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 20)))
        elif kind == 2:
            del data[at : at + chance.randrange(1, 10)]
        elif kind == 3:
            data[at:at] = chance.choice(
                (b",", b"=", b"\0", b"\x01", b"n=admin", b"a=admin", b",p=AAAA", b"\xff" * 9, b"m=x,")
            )
        else:
            data = data * 2
    return bytes(data[:70_000])


def run(cases: int, seed: int) -> int:
    chance = random.Random(seed)
    failures = 0
    for _ in range(cases):
        name, messages = conversations(chance)
        server = SERVERS[name]()
        try:
            for message in messages:
                server.evaluate(message)
        except SaslFailure:
            failures += 1
        assert not server.complete, (name, messages)
    return failures


def test_nobody_gets_in() -> None:
    assert run(1_800, seed=4711) > 1_000


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_nobody_gets_in_100_000_times() -> None:
    assert run(100_000, seed=4712) > 50_000


def test_the_fuzzer_could_get_in() -> None:
    """Planted: with the right password the same conversation completes, so a hole would be seen."""
    server = scram_server()
    client = ScramClient("SCRAM-SHA-256", "alice", PASSWORD, "client-nonce")
    server.evaluate(client.respond(server.evaluate(client.first())) or b"")
    assert server.complete


@pytest.mark.timeout(180)
def test_frames_around_the_exchange() -> None:
    """200 broken exchanges over real connections; a good client is served after all of them."""
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users(USERS),
        "connection.failed.authentication.delay.ms": "0",
    }
    chance = random.Random(99)
    with Broker(properties=properties) as broker:
        port = broker.node.ports["SASL_PLAINTEXT"]
        for _ in range(200):
            with Session(port, timeout=5) as session, contextlib.suppress(Closed, DecodeError, OSError, AssertionError):
                version = chance.choice((0, 1))
                session.handshake(chance.choice(("PLAIN", "SCRAM-SHA-256", "GSSAPI", "")), version)
                token = mutated(chance, b"\0alice\0wrong")
                if version == 0 or chance.random() < 0.3:
                    session.socket.sendall(struct.pack(">i", len(token)) + token)
                    session.socket.shutdown(1)
                    while session.socket.recv(4096):
                        pass
                else:
                    assert session.authenticate(token, chance.choice((0, 1, 2))).error_code != 0
        with Session(port).plain("alice", PASSWORD) as session:
            assert session.ask(MetadataRequest([]), 9) is not None
