"""An answer that a kill cut off is no answer, wherever the cut is: for the clients of the tests and for our own."""

from __future__ import annotations

import asyncio
import http.client
import socket
import struct
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest

from ottla.client.errors import RegistryRefused, RegistryUnreachable
from ottla.client.schema_registry import RegistryClient, latest_schema
from ottla.console.errors import ConsoleError
from ottla.console.registry_client import ConsoleRegistry
from ottla.model.user_error import UserError
from ottla.registry.http import forwarding
from ottla.registry.settings import RegistrySettings
from ottla.security.jwks import JwksError, UrlKeys
from ottla.server.monitoring.traces import TraceSender
from tests.registry.instances import call, register
from tests.registry.test_instances import Clients
from tests.support.frames import RawConnection
from tests.support.whole_answers import CuttingServer, cut_answers, whole

CUT = cut_answers()
BODIES = [place for place in CUT if not place.startswith("error")]


@pytest.mark.parametrize("place", CUT)
def test_the_registrys_test_client_does_not_know(place: str) -> None:
    with CuttingServer(CUT[place]) as server, pytest.raises(OSError):
        register(server.url, "s", '"string"')


def test_a_whole_answer_is_one() -> None:
    for head in (b"Content-Length: 9\r\n", b"Connection: close\r\n"):
        with CuttingServer(b"HTTP/1.1 200 OK\r\n" + head + b'\r\n{"id": 1}') as server:
            assert call(server.url, "GET", "/") == (200, {"id": 1})
            assert RegistryClient(server.url).call("GET", "x") == {"id": 1}


@pytest.mark.parametrize("place", CUT)
def test_a_client_of_the_kill_rounds_tries_again_and_has_no_problem(place: str) -> None:
    with CuttingServer(CUT[place]) as server:
        clients = Clients(SimpleNamespace(urls=lambda: [server.url]))  # type: ignore[arg-type]
        clients.start()
        while server.requests < 6:
            assert any(thread.is_alive() for thread in clients._threads), "a client died of it"
        clients.stop()
        assert (clients.acknowledged, clients.problems) == ([], [])


@pytest.mark.parametrize("place", CUT)
def test_our_own_clients_say_that_there_is_no_answer(place: str) -> None:
    with CuttingServer(CUT[place]) as server:
        # Of an error the status is known, and that nothing was done.
        with pytest.raises(RegistryRefused if place.startswith("error") else RegistryUnreachable):
            RegistryClient(server.url).call("GET", "subjects", "s", "versions", "1")
        with pytest.raises(ConsoleError, match=r"answered 500" if place.startswith("error") else "does not answer"):
            ConsoleRegistry(server.url).version("s", 1)
        with pytest.raises(UserError):
            latest_schema(server.url, "s")
        with pytest.raises(JwksError):
            UrlKeys(server.url).refresh()


@pytest.mark.parametrize("place", BODIES)
def test_a_forwarded_write_whose_answer_is_cut_is_no_success(place: str) -> None:
    request: Any = SimpleNamespace(method="POST", target="/subjects/s/versions", body=b"{}", headers={})
    with CuttingServer(CUT[place]) as server, pytest.raises((OSError, http.client.HTTPException)):
        forwarding._send(RegistrySettings(bootstrap_servers="127.0.0.1:9"), server.url, request)


@pytest.mark.parametrize("place", CUT)
def test_traces_go_on_after_a_collector_that_dies(place: str) -> None:
    with CuttingServer(CUT[place]) as server:
        metrics: Any = SimpleNamespace(take=iter([["span"], []]).__next__, spans_dropped=0)
        metrics.take = lambda _count, left=[["span"]]: left.pop() if left else []
        sender: Any = TraceSender(server.url, metrics, SimpleNamespace(), 1, "cluster")
        sender._request = lambda _spans: {}
        asyncio.run(sender._send())
        assert server.requests == 1


def test_a_kafka_answer_that_is_cut_is_a_lost_connection() -> None:
    """Whoever waits for a server that is killed catches OSError."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connection = RawConnection(*listening.getsockname()[:2], timeout=10)
        server, _ = listening.accept()
        with server:
            server.sendall(struct.pack(">i", 100) + b"half")
        with connection, pytest.raises(OSError, match="inside a frame"):
            connection.request(18, 0, b"")


def test_what_reads_an_answer_elsewhere_in_the_tests_sees_the_cut() -> None:
    for place in BODIES:
        with (
            CuttingServer(CUT[place]) as server,
            pytest.raises((OSError, http.client.HTTPException)),
            urlopen(server.url, timeout=10) as answer,
        ):
            whole(answer)
