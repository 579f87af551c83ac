"""Connections that say nothing: the node refuses those it has no descriptors for and goes on, on every listener."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.robustness.server_process import ServerProcess
from tests.robustness.wire import create_topic, produce
from tests.support.frames import RawConnection
from tests.support.ports import free_ports

LIMIT = 1024
SILENT = 520

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what a process has open is in /proc")


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * SILENT
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may have {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def silent(port: int, stack: ExitStack) -> None:
    sock = stack.enter_context(socket.socket())
    sock.settimeout(60)
    sock.connect(("127.0.0.1", port))


def is_served(port: int) -> bool:
    """ApiVersions on a connection of its own."""
    try:
        with RawConnection("127.0.0.1", port, timeout=60) as connection:
            return connection.request(18, 0, b"") is not None
    except OSError:
        return False


@pytest.mark.usefixtures("many_descriptors")
def test_silent_connections_on_two_listeners(tmp_path: Path) -> None:
    port, second, third, controller, http = free_ports(5)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SECOND://127.0.0.1:{second},BROKERS://127.0.0.1:{third},"
        f"CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "ottla.http.listener": f"127.0.0.1:{http}",
    }
    server = ServerProcess(tmp_path, properties=properties, limits={resource.RLIMIT_NOFILE: LIMIT})
    server.port, server.controller_port = port, controller
    with ExitStack() as stack:
        stack.enter_context(server)
        before = stack.enter_context(RawConnection("127.0.0.1", port, timeout=60))
        assert create_topic(before, "topic", 8) == 0
        for number in range(2 * SILENT):
            silent((port, second)[number % 2], stack)
        # Who is there is served, files are opened, and nodes and whoever asks for the health still get in.
        for partition in range(8):
            assert produce(before, "topic", partition, b"x")[0] == 0
        assert create_topic(before, "more", 8) == 0
        assert produce(before, "more", 7, b"x")[0] == 0
        assert is_served(third)
        assert is_served(controller)
        with socket.create_connection(("127.0.0.1", http), 60) as health:
            health.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert health.recv(100).startswith(b"HTTP/1.1 200")
        assert server.process is not None
        assert server.process.poll() is None
        assert "directory.failed" not in server.log_text()
        assert "Too many open files" not in server.log_text()
        server.assert_no_traceback()
