"""The server that the loads are compared with takes what a broker takes, counts it, and writes it only when asked."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from bench.floor_server import FloorServer
from bench.wire import Connection, batch, fetch, fetched, produce, produced
from tests.support.ports import free_port


@pytest.mark.parametrize("writing", [False, True])
def test_it_counts_what_it_takes(tmp_path: Path, writing: bool) -> None:
    port = free_port()
    server = FloorServer(port, tmp_path if writing else None)
    threading.Thread(target=server.run, daemon=True).start()
    with _connected(port) as connection:
        connection.create_topic("t", 2)
        records = batch(b"x" * 100, count=3)
        for number in range(5):
            connection.socket.sendall(produce(number, "t", 1, records))
            error, offset = produced(connection.receive())
            assert (error, offset) == (0, number * 3)
        assert connection.end_offsets("t", 2) == [0, 15]
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        sized = {name: len(data) for name, data in files.items()}
        assert sized == ({"t-0": 0, "t-1": len(records) * 5} if writing else {})
        connection.socket.sendall(fetch(9, "t", 1, offset=4, max_bytes=2 * len(records)))
        found = bytes(fetched(connection.receive()))
        assert found == (files["t-1"][len(records) : 3 * len(records)] if writing else b"")
        with Connection(port) as reader:
            reader.socket.sendall(fetch(1, "t", 1, offset=15, max_bytes=1000))
            connection.socket.sendall(produce(6, "t", 1, records))
            connection.receive()
            came = bytes(fetched(reader.receive()))
            assert came == ((tmp_path / "t-1").read_bytes()[-len(records) :] if writing else b"")
        connection.delete_topic("t")
        assert list(tmp_path.iterdir()) == []


def _connected(port: int) -> Connection:
    for _ in range(200):
        try:
            return Connection(port)
        except OSError:
            threading.Event().wait(0.01)
    raise AssertionError("the floor server does not listen")
