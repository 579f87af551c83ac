"""A login is not taken along to another server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from ottla.client.errors import RegistryRefused
from ottla.client.schema_registry import RegistryClient
from ottla.env.http_request import open_request


@contextmanager
def server(location: str | None) -> Iterator[tuple[str, list[str | None]]]:
    """(address, the Authorization headers that came); answers `/to` with a redirect."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            target = "/there" if location == "" else location
            if target is None or self.path == "/there":
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"[]")
                return
            self.send_response(302)
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}", seen
    finally:
        running.shutdown()
        running.server_close()


def test_a_redirect_to_another_server_gets_no_login() -> None:
    with ExitStack() as both:
        thief, stolen = both.enter_context(server(None))
        address, _ = both.enter_context(server(thief))
        with pytest.raises(HTTPError, match="302"):
            open_request(Request(address, headers={"Authorization": "Basic x"}), 30)
        with pytest.raises(RegistryRefused):
            RegistryClient(address, user="ann:s3cret").call("GET", "subjects")
        assert stolen == []
        with open_request(Request(address), 30) as answer:
            assert answer.read() == b"[]"
        assert stolen == [None]


def test_a_redirect_on_the_same_server_is_followed() -> None:
    with server("") as (address, seen), open_request(Request(address, headers={"Authorization": "x"}), 30) as answer:
        assert answer.read() == b"[]"
        assert seen == ["x", "x"]
