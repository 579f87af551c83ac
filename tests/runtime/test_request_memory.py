"""queued.max.request.bytes: requests that are half sent wait for each other's memory, and nobody waits for ever."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.runtime import request_memory
from ottla.runtime.request_memory import RequestMemory
from ottla.runtime.response_memory import ResponseMemory
from ottla.testing import Broker
from tests.robustness.wire import encoded
from tests.support.frames import RawConnection

MEBIBYTE = 1024 * 1024


class Reader:
    last_active = 0.0
    is_receiving = True

    def __init__(self) -> None:
        self.heard = 0

    def on_memory(self) -> None:
        self.heard += 1

    def refuse_stalled(self) -> None:
        raise AssertionError("not in this test")


def test_a_request_reserves_while_anything_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = RequestMemory(100)
    monkeypatch.setattr(memory, "_watch", lambda: None)
    first, second, third = Reader(), Reader(), Reader()
    assert memory.reserve(first, 60)
    assert memory.reserve(second, 90)  # over the limit by this one
    assert not memory.reserve(third, 10)
    assert memory.total == 150
    memory.release(first)
    assert third.heard == 1
    assert memory.reserve(third, 10)
    memory.release(second)
    memory.release(third)
    assert memory.total == 0


def half_sent(port: int, size: int, sent: int) -> socket.socket:
    """A Produce that announces `size` bytes."""
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.setblocking(False)
    data = memoryview(struct.pack(">i", size) + struct.pack(">hhih", 0, 9, 1, -1) + bytes(sent))
    deadline = time.monotonic() + 20
    while data and time.monotonic() < deadline:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            break  # nobody reads it, and the buffers are full
    return sock


def test_half_sent_requests_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_memory, "STALLED_SECONDS", 0.5)
    limit = 16 * MEBIBYTE
    properties = {"queued.max.request.bytes": str(limit), "socket.request.max.bytes": str(8 * MEBIBYTE)}
    with Broker(properties=properties) as broker:
        port = broker.node.ports["PLAINTEXT"]
        memory = broker.node._memory
        assert memory is not None
        stuck = [half_sent(port, 7 * MEBIBYTE, 6 * MEBIBYTE) for _ in range(6)]
        deadline = time.monotonic() + 60
        while memory.total < limit and time.monotonic() < deadline:
            time.sleep(0.01)
        assert limit <= memory.total <= limit + 8 * MEBIBYTE
        with RawConnection("127.0.0.1", port, timeout=60) as connection:
            assert connection.request(18, 0, b"") is not None  # a small request waits for nothing
            # A large one waits until those that stall have lost their connections.
            body = struct.pack(">i", 100_000) + b"\0\3abc" * 100_000
            answer = connection.request(3, 1, body)
            assert answer is not None
        assert memory.total <= limit + 8 * MEBIBYTE
        for sock in stuck:
            sock.close()


class Unread:
    def __init__(self) -> None:
        self.refused = False

    def refuse_unread(self) -> None:
        self.refused = True


def test_the_answer_that_waits_longest_gives_way() -> None:
    memory = ResponseMemory(100)
    first, second, third = Unread(), Unread(), Unread()
    memory.hold(first, 500)  # one alone may be larger
    memory.hold(second, 60)
    assert (first.refused, second.refused, memory.total) == (True, False, 60)
    memory.hold(third, 40)
    memory.release(second)
    assert (second.refused, third.refused, memory.total) == (False, False, 40)


def test_peers_that_never_read_do_not_fill_the_node() -> None:
    """Each asks for 6 MB, more than a socket takes; those that read get it all."""
    properties = {"ottla.response.max.queued.bytes": str(4 * MEBIBYTE), "auto.create.topics.enable": "false"}
    names = [MetadataRequestTopic(name=f"{number}-{'x' * 32_000}") for number in range(190)]
    frame = encoded(MetadataRequest(names, allow_auto_topic_creation=False))
    with Broker(properties=properties) as broker:
        host, port = broker.bootstrap_servers.split(":")
        peers = []
        for _ in range(5):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect((host, int(port)))
            peer.sendall(frame)
            peers.append(peer)
        with RawConnection(host, int(port)) as reader:
            reader.send_raw(frame)
            answer = reader.read_frame()
        assert len(answer or b"") > 4 * MEBIBYTE
        closed = sum(_is_closed(peer) for peer in peers)
        for peer in peers:
            peer.close()
    assert closed > 0


def _is_closed(peer: socket.socket) -> bool:
    """Whether its answer is cut off."""
    peer.settimeout(20)
    try:
        left = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))[0]
        while left:
            data = peer.recv(min(left, MEBIBYTE))
            if not data:
                return True
            left -= len(data)
    except (ConnectionError, struct.error):
        return True
    return False
