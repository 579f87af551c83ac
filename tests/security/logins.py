"""Logins that are wrong in one way each, sent to a SASL listener; what each is told, as (code, words) or "closed"."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.protocol.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.security.scram import ScramClient, salted_password
from tests.security.session import Closed, Session

SCRAM_USER, SCRAM_PASSWORD = "scrammer", "pencil"
SALT = b"s" * 16
_NONCE = "fyko+d2lbbFgONRv9qkxdawL"
Login = Callable[[Session], Any]


def make_scram_user(admin: Session) -> None:
    salted = salted_password("SCRAM-SHA-256", SCRAM_PASSWORD, SALT, 4096)
    upsertion = ScramCredentialUpsertion(SCRAM_USER, 1, 4096, SALT, salted)
    assert admin.ask(AlterUserScramCredentialsRequest([], [upsertion]), 0).results[0].error_code == 0


def scram_is_known(port: int) -> bool:
    with Session(port) as session:
        return bool(session.scram("SCRAM-SHA-256", SCRAM_USER, SCRAM_PASSWORD).error_code == 0)


def plain_code(port: int, name: str, password: str) -> int:
    with Session(port) as session:
        assert session.handshake("PLAIN").error_code == 0
        return int(session.authenticate(f"\0{name}\0{password}".encode()).error_code)


def handshake_facts(session: Session, mechanism: str, version: int = 1) -> tuple[int, list[str]]:
    answer = session.handshake(mechanism, version)
    return answer.error_code, sorted(answer.mechanisms)


def upsertions(admin: Session) -> list[tuple[int, str | None]]:
    """Credentials that are too weak, or none."""
    cases = [
        ScramCredentialUpsertion("weak", 1, iterations, SALT, b"p" * 32)
        for iterations in (4095, 1, 0, -1, 16385, 2**31 - 1)
    ]
    cases += [
        ScramCredentialUpsertion("weak", 0, 4096, SALT, b"p" * 32),
        ScramCredentialUpsertion("weak", 7, 4096, SALT, b"p" * 32),
        ScramCredentialUpsertion("", 1, 4096, SALT, b"p" * 32),
        ScramCredentialUpsertion("weak", 1, 4096, SALT, b""),
    ]
    found = []
    for case in cases:
        result = admin.ask(AlterUserScramCredentialsRequest([], [case]), 0).results[0]
        found.append((result.error_code, result.error_message))
    return found


def _told(answer: Any) -> tuple[Any, ...]:
    return answer.error_code, answer.error_message


def _scram(name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Login:
    return lambda session: _told(session.scram(mechanism, name, password))


def _first(message: str, mechanism: str = "SCRAM-SHA-256") -> Login:
    """The first message alone; a server that goes on gives another answer each time."""

    def login(session: Session) -> Any:
        assert session.handshake(mechanism).error_code == 0
        return _told(session.authenticate(message.encode()))

    return login


def _final(change: Callable[[str], str], first: Callable[[bytes], bytes] = bytes) -> Login:
    """A right exchange but for the last message."""

    def login(session: Session) -> Any:
        assert session.handshake("SCRAM-SHA-256").error_code == 0
        client = ScramClient("SCRAM-SHA-256", SCRAM_USER, SCRAM_PASSWORD, _NONCE)
        answer = session.authenticate(first(client.first()))
        final = (client.respond(bytes(answer.auth_bytes)) or b"").decode()
        return _told(session.authenticate(change(final).encode()))

    return login


def _with_nonce(final: str, nonce: str) -> str:
    parts = final.split(",")
    return ",".join(f"r={nonce}" if part.startswith("r=") else part for part in parts)


def _twice(session: Session) -> Any:
    """The same messages again: the server's part of the nonce is another."""
    assert session.handshake("SCRAM-SHA-256").error_code == 0
    client = ScramClient("SCRAM-SHA-256", SCRAM_USER, SCRAM_PASSWORD, _NONCE)
    final = client.respond(bytes(session.authenticate(client.first()).auth_bytes)) or b""
    first = _told(session.authenticate(final))
    with Session(session.socket.getpeername()[1]) as other:
        assert other.handshake("SCRAM-SHA-256").error_code == 0
        other.authenticate(client.first())
        return first, _told(other.authenticate(final))


def _handshake(mechanism: str, version: int = 1) -> Login:
    return lambda session: handshake_facts(session, mechanism, version)


def _bare(token: bytes) -> Login:
    """After SaslHandshake v0."""

    def login(session: Session) -> Any:
        assert session.handshake("PLAIN", 0).error_code == 0
        session.socket.sendall(struct.pack(">i", len(token)) + token)
        return session.read_frame()

    return login


def _plain(token: bytes) -> Login:
    def login(session: Session) -> Any:
        assert session.handshake("PLAIN").error_code == 0
        return _told(session.authenticate(token))

    return login


def _no_handshake(session: Session) -> Any:
    return _told(session.authenticate(b"\0a\0b"))


def _two_handshakes(session: Session) -> Any:
    session.handshake("PLAIN")
    return _handshake("PLAIN")(session)


def _versions_twice(session: Session) -> Any:
    session.ask(ApiVersionsRequest("a", "1"), 3)
    return session.ask(ApiVersionsRequest("a", "1"), 3).error_code


def _versions_inside(session: Session) -> Any:
    session.handshake("PLAIN")
    return session.ask(ApiVersionsRequest("a", "1"), 3).error_code


def _metadata(session: Session) -> Any:
    return session.ask(MetadataRequest([]), 9)


def _again_at_once(session: Session) -> Any:
    """A login inside a session that has no end."""
    assert session.scram("SCRAM-SHA-256", SCRAM_USER, SCRAM_PASSWORD).error_code == 0
    shaken = session.handshake("SCRAM-SHA-256").error_code
    return shaken, _told(session.authenticate(b"n,,n=x,r=y"))


def logins() -> dict[str, Login]:
    right = f"n,,n={SCRAM_USER},r={_NONCE}"
    return {
        "right": _scram(SCRAM_USER, SCRAM_PASSWORD),
        "wrong password": _scram(SCRAM_USER, "pen"),
        "unknown user": _scram("nobody", SCRAM_PASSWORD),
        "empty name": _scram("", SCRAM_PASSWORD),
        "another name's case": _scram(SCRAM_USER.upper(), SCRAM_PASSWORD),
        "empty message": _first(""),
        "half a message": _first(right[:12]),
        "no nonce": _first(f"n,,n={SCRAM_USER},r="),
        "channel binding asked": _first(f"p=tls-unique,,n={SCRAM_USER},r={_NONCE}"),
        "channel binding possible": _first(f"y,,n={SCRAM_USER},r={_NONCE}"),
        "for somebody else": _first(f"n,a=boss,n={SCRAM_USER},r={_NONCE}"),
        "bad escape": _first(f"n,,n=scr=41mmer,r={_NONCE}"),
        "plain: many parts": _plain(b"\0".join(b"abcdefg"[at : at + 1] for at in range(7))),
        "mandatory extension": _first(f"n,,m=x,n={SCRAM_USER},r={_NONCE}"),
        "a token that is none": _first(f"n,,n={SCRAM_USER},r={_NONCE},tokenauth=true"),
        "final: the client's nonce alone": _final(lambda final: _with_nonce(final, _NONCE)),
        "final: a made-up nonce": _final(lambda final: _with_nonce(final, _NONCE + "x" * 24)),
        "final: no proof": _final(lambda final: final.rsplit(",p=", 1)[0]),
        "final: an empty proof": _final(lambda final: final.rsplit(",p=", 1)[0] + ",p="),
        "final: a short proof": _final(lambda final: final.rsplit(",p=", 1)[0] + ",p=AAAA"),
        "final: zeros": _final(lambda final: final.rsplit(",p=", 1)[0] + ",p=" + "A" * 43 + "="),
        "final: another binding": _final(lambda final: final.replace("c=biws", "c=eSws")),
        "final: the first again": _final(lambda _: right),
        "the same twice": _twice,
        "no such mechanism": _handshake("SCRAM-SHA-1"),
        "no mechanism": _handshake(""),
        "mechanism in small letters": _handshake("plain"),
        "one that is off here": _handshake("SCRAM-SHA-512"),
        "old handshake of no such mechanism": _handshake("NONE", 0),
        "bare token, wrong": _bare(b"\0case0\0nothing"),
        "bare token, no token": _bare(b""),
        "plain: wrong password": _plain(b"\0case0\0nothing"),
        "plain: unknown": _plain(b"\0nobody\0nothing"),
        "plain: empty": _plain(b""),
        "plain: two parts": _plain(b"\0case0"),
        "plain: four parts": _plain(b"\0case0\0x\0y"),
        "plain: no password": _plain(b"\0case0\0"),
        "plain: no name": _plain(b"\0\0x"),
        "plain: for somebody else": _plain(b"boss\0case0\0matrix"),
        "no handshake": _no_handshake,
        "two handshakes": _two_handshakes,
        "ApiVersions twice": _versions_twice,
        "ApiVersions inside": _versions_inside,
        "Metadata first": _metadata,
        "again at once": _again_at_once,
    }


def outcomes(port: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, login in logins().items():
        try:
            with Session(port) as session:
                found[name] = login(session)
        except Closed:
            found[name] = "closed"
    return found
