"""Credentials go to other instances only: an address in the election group is listed or signed, or gets nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer

from ottla.registry.http.answers import Request
from ottla.registry.http.forwarding import _send
from ottla.registry.peers import RegistryPeer, RegistryPeers
from ottla.registry.settings import RegistrySettings, RegistryStartError
from ottla.testing import Broker
from tests.registry.instances import RegistryThread, call, until
from tests.registry.test_security import basic

BODY = {"schema": '"int"'}
ANN = basic("ann:open")


class Thief:
    """A member of the election group that waits for the writer's requests."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                seen.append(dict(self.headers))
                self.send_response(200)
                self.send_header("Content-Length", "8")
                self.end_headers()
                self.wfile.write(b'{"id":1}')

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @contextmanager
    def elected(self, bootstrap_servers: str, topic: str, group: str, client_id: str | None = None) -> Iterator[None]:
        """Before any instance is there: the group's only member gets the topic's only partition."""
        config = {"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": client_id or self.url,
                  "partition.assignment.strategy": "range", "allow.auto.create.topics": True}  # fmt: skip
        member, stopping, elected = Consumer(config), threading.Event(), threading.Event()
        member.subscribe([topic], on_assign=lambda _, partitions: elected.set() if partitions else None)

        def stay() -> None:
            while not stopping.is_set():
                member.poll(0.1)
            member.close()

        thread = threading.Thread(target=stay, daemon=True)
        thread.start()
        assert elected.wait(60)
        try:
            yield
        finally:
            stopping.set()
            thread.join(30)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def thief() -> Iterator[Thief]:
    running = Thief()
    yield running
    running.close()


@pytest.fixture
def users(tmp_path: Path) -> str:
    (tmp_path / "users").write_text("ann:open\n")
    return str(tmp_path / "users")


@pytest.fixture
def secret(tmp_path: Path) -> str:
    (tmp_path / "secret").write_text("a secret of the instances\n")
    return str(tmp_path / "secret")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trust", ["nothing", "a list", "a secret"])
def test_whoever_joins_the_group_gets_no_credentials(broker: Broker, thief: Thief, users: str, secret: str, trust: str) -> None:  # fmt: skip
    name = f"thieves-{trust.replace(' ', '-')}"
    given = {"a list": {"peers": ("http://127.0.0.1:1",)}, "a secret": {"peer_secret_file": secret}}.get(trust, {})
    settings = {"topic": f"_schemas_{name}", "group_id": name, "users_file": users, **given}
    with RegistryThread(broker.bootstrap_servers, topic=settings["topic"]):
        pass  # the topic is there, so that the thief can be given it
    # In capitals: the assignor gives the partition to the member whose name sorts first.
    address = thief.url.replace("http", "HTTP")
    forged = address if trust != "a secret" else f"{address}#v1.{'A' * 43}"
    with (
        thief.elected(broker.bootstrap_servers, str(settings["topic"]), name, forged),
        RegistryThread(broker.bootstrap_servers, alone=False, session_timeout_ms=60_000, **settings) as registry,
    ):
        mine = registry.server.registry
        until(
            lambda: asyncio.run(mine.find_writer(again=True)) == RegistryPeer(forged.partition("#")[0], trusted=False),
            60,
        )
        until(lambda: not mine.is_writer, 60)
        status, answer = call(registry.url, "POST", "/subjects/s/versions", BODY, headers=ANN)
        assert (status, answer["error_code"]) == (500, 50003), answer
        assert not thief.seen, "the credentials left"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trust", ["a list", "a secret"])
def test_instances_that_know_each_other_forward(users: str, secret: str, trust: str, tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "b") as broker:
        given = {"peer_secret_file": secret} if trust == "a secret" else {"peers": ("http://127.0.0.1:1",)}
        settings = {"alone": False, "users_file": users, **given}
        with (
            RegistryThread(broker.bootstrap_servers, **settings) as one,
            RegistryThread(broker.bootstrap_servers, **settings) as two,
        ):
            until(lambda: one.server.registry.is_writer or two.server.registry.is_writer, 60)
            writer, other = (one, two) if one.server.registry.is_writer else (two, one)
            if trust == "a list":
                assert call(other.url, "POST", "/subjects/s/versions", BODY, headers=ANN)[1]["error_code"] == 50003
                other.server.registry.peers = RegistryPeers(listed=(writer.url.upper().replace("HTTP", "http") + "/",))
                other.server.registry._writer = None
            assert call(other.url, "POST", "/subjects/s/versions", BODY, headers=ANN)[0] == 200


def test_a_signature_holds_for_one_address_and_one_group() -> None:
    mine = RegistryPeers(secret=b"0123456789abcdef", group_id="g")
    name = mine.client_id("http://a:1")
    assert mine.read(name) == RegistryPeer("http://a:1", trusted=True)
    assert not mine.read(name.replace("//a", "//b")).trusted
    assert not mine.read("http://a:1").trusted
    assert not RegistryPeers(secret=b"0123456789abcdef", group_id="h").read(name).trusted
    assert not RegistryPeers(secret=b"another secret of us", group_id="g").read(name).trusted
    assert not RegistryPeers().read(name).trusted


@pytest.mark.parametrize("name", ["http://[::1].evil.example:8081", "http://::1@[::1]:8081", "http://[::1]:8081/x"])
def test_a_request_goes_to_the_address_that_was_compared(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Two readers of one text: to urlsplit the first name is ::1, and http.client would have asked for the whole of it."""
    asked: list[tuple[str, int]] = []

    def connect(self: HTTPConnection) -> None:
        asked.append((self.host, self.port))
        raise ConnectionRefusedError

    monkeypatch.setattr(HTTPConnection, "connect", connect)
    peer = RegistryPeers(listed=["http://[::1]:8081"]).read(name)
    if peer.trusted:
        request = Request(
            "POST", ("subjects",), {}, {"authorization": ANN["Authorization"]}, b"{}", "/subjects/a/versions"
        )
        with pytest.raises(ConnectionRefusedError):
            _send(RegistrySettings(bootstrap_servers="127.0.0.1:1"), peer.url, request)
    assert set(asked) <= {("::1", 8081)}


def test_the_version_before_reads_a_signed_address_as_the_address() -> None:
    """It opens a connection to `urlsplit(client_id).netloc`."""
    name = RegistryPeers(secret=b"0123456789abcdef", group_id="g").client_id("https://a.example:8081")
    assert urlsplit(name)[:3] == ("https", "a.example:8081", "")


@pytest.mark.parametrize("text", ["", "short"])
def test_a_secret_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    with pytest.raises(RegistryStartError, match="secret"):
        RegistryPeers.of(RegistrySettings(bootstrap_servers="", peer_secret_file=str(tmp_path / "s")))
    with pytest.raises(RegistryStartError, match="--peer"):
        RegistryPeers.of(RegistrySettings(bootstrap_servers="", peers=("a:1",)))
