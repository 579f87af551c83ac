"""The wire client: addresses that do not answer, connections that broke, a request ahead."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from ottla.client.cluster import Cluster
from ottla.client.connection import BrokerConnection
from ottla.client.errors import ConnectionFailed
from ottla.client.settings import client_settings
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.generated.metadata_response import MetadataResponse
from ottla.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_silent_address_leaves_time_for_the_next(broker, silent):
    with Cluster(client_settings(f"{silent},{broker.bootstrap_servers}", {})) as cluster:
        assert cluster.metadata((), time.monotonic() + 4).brokers


def test_a_broken_connection_is_replaced(broker):
    with Cluster(client_settings(broker.bootstrap_servers, {})) as cluster:
        deadline = time.monotonic() + 30
        cluster.metadata((), deadline)
        first = cluster.any(deadline)
        first.close()
        assert first.closed
        assert cluster.metadata((), deadline).brokers


def test_responses_come_in_the_order_of_their_requests(broker):
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    deadline = time.monotonic() + 30
    connection = BrokerConnection(host, int(port), client_settings(broker.bootstrap_servers, {}), deadline)
    for _ in range(3):
        connection.send(MetadataRequest(topics=[]), 9, deadline)
    for _ in range(3):
        assert connection.receive(MetadataResponse, 9, deadline).brokers
    connection.close()
    with pytest.raises(ConnectionFailed):
        connection.send(MetadataRequest(topics=[]), 9, deadline)


def test_a_server_of_another_protocol_names_no_buffer():
    """The first four bytes of a TLS alert are a size of 352 MB: the client waits for the data before it takes memory."""
    import tracemalloc

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        import threading

        def answer() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(bytes.fromhex("15030300020228"))

        server = threading.Thread(target=answer)
        server.start()
        tracemalloc.start()
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            BrokerConnection("127.0.0.1", port, client_settings(f"127.0.0.1:{port}", {}), time.monotonic() + 30)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        server.join()
        assert peak < 10_000_000
