"""When `ottla up --nodes` calls a node up: a broker that is still fenced answers, and gets no partitions."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ottla.server.up.cluster import is_ready
from tests.support.ports import free_port


@pytest.mark.parametrize(("status", "ready"), [(503, False), (200, True), (401, True)])
def test_a_node_is_ready_when_it_says_so(status: int, ready: bool) -> None:
    asked: list[str] = []

    class Node(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Node) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert is_ready(f"127.0.0.1:{server.server_port}") is ready
        server.shutdown()
    assert asked == ["/readyz"]


def test_nobody_is_not_ready_and_a_node_without_http_is_not_asked() -> None:
    assert not is_ready(f"127.0.0.1:{free_port()}")
    assert is_ready("")
