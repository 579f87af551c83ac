"""Clients that no server wants: each is a context manager that goes on with it while its block runs."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.robustness.wire import encoded

MIB = 1024 * 1024
METADATA = struct.pack(">ihhih", 14, 3, 1, 1, -1) + b"\xff\xff\xff\xff"
"""All topics, v1."""


def raise_own_limit(wanted: int) -> None:
    """Descriptors for this process; OSError where the hard limit forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def connections(port: int, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", port), 20)
            opened.append(sock)
            if first:
                sock.sendall(first)
        yield opened
    finally:
        for sock in opened:
            sock.close()


@contextlib.contextmanager
def in_background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(20)


@contextlib.contextmanager
def idle(port: int, count: int = 5000) -> Iterator[None]:
    """Connections that never say anything."""
    raise_own_limit(count + 1000)
    with connections(port, count):
        yield


@contextlib.contextmanager
def promises(port: int, count: int = 20) -> Iterator[None]:
    """Announce 100 MiB, send 1 KiB, wait."""
    with connections(port, count, struct.pack(">i", 100 * MIB) + b"\0\0\0\x0c" + b"x" * 1020):
        yield


@contextlib.contextmanager
def slow_loris(port: int, count: int = 200) -> Iterator[None]:
    """A valid request at one byte per second, on many connections, spread over the second."""
    with connections(port, count) as opened:

        def drip(ended: threading.Event) -> None:
            sent = [0] * count
            while not ended.is_set():
                for number, sock in enumerate(opened):
                    with contextlib.suppress(OSError):
                        sock.send(METADATA[sent[number] : sent[number] + 1])
                    sent[number] = (sent[number] + 1) % len(METADATA)
                    if ended.wait(1 / count):
                        return

        with in_background(drip):
            yield


@contextlib.contextmanager
def never_reads(port: int, count: int = 5) -> Iterator[None]:
    """Ask and ask and never take an answer."""
    with connections(port, count) as opened:
        for sock in opened:
            sock.setblocking(False)

        def ask(ended: threading.Event) -> None:
            burst = METADATA * 1000
            while not ended.is_set():
                for sock in opened:
                    with contextlib.suppress(BlockingIOError):
                        sock.send(burst)
                ended.wait(0.01)

        with in_background(ask):
            yield


@contextlib.contextmanager
def fetches_and_never_reads(port: int, count: int = 20, *, topic: str) -> Iterator[None]:
    """Ask for megabytes of records and leave them in the server's hands."""
    wanted = [FetchPartition(0, fetch_offset=0, partition_max_bytes=50 * MIB)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=50 * MIB, topics=[FetchTopic(topic, partitions=wanted)]
    )
    with connections(port, count, encoded(request, 11) * 20):
        yield


@contextlib.contextmanager
def floods(port: int, count: int = 3) -> Iterator[None]:
    """Pipeline small requests as fast as the server takes them, and read the answers."""
    with connections(port, count) as opened, contextlib.ExitStack() as stack:
        for sock in opened:

            def ask(ended: threading.Event, sock: socket.socket = sock) -> None:
                burst = METADATA * 5000
                sock.setblocking(False)
                while not ended.is_set():
                    with contextlib.suppress(BlockingIOError):
                        sock.send(burst)
                    with contextlib.suppress(BlockingIOError):
                        while sock.recv(MIB):
                            pass

            stack.enter_context(in_background(ask))
        yield


@contextlib.contextmanager
def comes_and_goes(port: int) -> Iterator[None]:
    """Connect, send half a request, reset; over and over."""

    def knock(ended: threading.Event) -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.send(METADATA[:9])

    with in_background(knock):
        yield
