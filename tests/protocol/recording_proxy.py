"""A TCP proxy that keeps what goes through it: whole request and response frames, a few for each API and version."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import defaultdict

from ottla.protocol.api import decode_request_header
from ottla.protocol.framing import FrameDecoder
from ottla.protocol.primitives import DecodeError

PER_KIND = 2
OUR_CLIENT_ID = "sweep"
"""Requests under this name are ours, so they prove nothing: only their answers are kept."""
SMALL = 1500

Kind = tuple[str, int, int]
"""("request" or "response", API key, version)."""


class Recorder:
    """Keeps the largest small frames of each kind, since they have the most in them, and else the smallest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: dict[Kind, set[bytes]] = defaultdict(set)

    def add(self, kind: Kind, frame: bytes) -> None:
        with self._lock:
            kept = self._frames[kind]
            kept.add(frame)
            if len(kept) > PER_KIND:
                kept.remove(min(kept, key=lambda f: (len(f) <= SMALL, len(f) if len(f) <= SMALL else -len(f), f)))

    def frames(self) -> list[tuple[Kind, bytes]]:
        with self._lock:
            return sorted((kind, frame) for kind, kept in self._frames.items() for frame in kept)


class Proxy:
    def __init__(self, recorder: Recorder, port: int, target_port: int) -> None:
        self._recorder = recorder
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            asked: dict[int, tuple[int, int]] = {}
            for source, sink, watch in ((client, server, self._request), (server, client, self._response)):
                threading.Thread(target=self._pump, args=(source, sink, watch, asked), daemon=True).start()

    def _pump(self, source, sink, watch, asked) -> None:
        frames = FrameDecoder()
        with contextlib.suppress(OSError, DecodeError):
            while data := source.recv(1 << 16):
                frames.feed(data)
                for frame in frames.frames():
                    watch(frame, asked)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _request(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> None:
        key, version, correlation_id, client_id, _ = decode_request_header(frame)
        asked[correlation_id] = (key, version)
        if client_id != OUR_CLIENT_ID:
            self._recorder.add(("request", key, version), frame)

    def _response(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> None:
        found = asked.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if found is not None:
            self._recorder.add(("response", *found), frame)
