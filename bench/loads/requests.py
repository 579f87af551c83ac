"""The rate of produce requests on one connection, with ready-made frames: what the broker can do, not the client.

Pipelined keeps two bursts under way; ping-pong waits for each answer. All frames of a burst have answers of one length, so
the client counts bytes, and checks the error code of the last answer and the offsets in the log at the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.bed import Bed, cpu_of, require_written
from bench.loads import Case, Measured
from bench.measure import CPU_PER_REQUEST, REQUEST_RATE
from bench.plan import Sizes
from bench.wire import AnswerError, Connection, batch, produce, produced

NAME = "requests"
_NOT_YET = (3, 5, 6)  # unknown topic or partition, leader not available, not leader


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    label: str
    value_bytes: int
    burst: int
    window: int = 2


SHAPES = (
    Shape(label="one record of 100 B, pipelined", value_bytes=100, burst=250),
    Shape(label="one record of 100 B, ping-pong", value_bytes=100, burst=1, window=1),
    Shape(label="one record of 64 KB, pipelined", value_bytes=64_000, burst=8),
    Shape(label="one record of 1 MB, pipelined", value_bytes=1_000_000, burst=1),
)


def cases(sizes: Sizes) -> list[Case]:
    quantities = (REQUEST_RATE, CPU_PER_REQUEST)
    return [
        Case(load=NAME, label=shape.label, quantities=quantities, run=partial(_measure, sizes, shape))
        for shape in SHAPES
    ]


def _measure(sizes: Sizes, shape: Shape, bed: Bed, role: str) -> Measured:
    server = bed.shared(role)
    with bed.topic(server, 1) as topic:
        frames = [produce(index, topic, 0, batch(b"x" * shape.value_bytes)) for index in range(shape.burst)]
        with Connection(server.port, timeout_s=sizes.timeout_s) as connection:
            # A JIT needs a few seconds of small requests once, and a moment for each shape.
            warm_s = sizes.seconds * 2 if bed.first_time(role, NAME) else sizes.seconds / 4
            warmed = blast(connection, [b"".join(frames)], shape.burst, shape.window, warm_s)
            bed.settle(free_memory=True)
            with cpu_of(server) as cpu:
                done = blast(connection, [b"".join(frames)], shape.burst, shape.window, sizes.seconds)
        require_written(server, topic, 1, warmed.answered + done.answered)
    return {REQUEST_RATE: done.rate, CPU_PER_REQUEST: cpu.seconds / done.answered * 1e6}


@dataclass(frozen=True, slots=True)
class Blast:
    answered: int
    rate: float  # of all but the first burst, which only tells the length of an answer


def blast(connection: Connection, bursts: Sequence[bytes], burst: int, window: int, seconds: float) -> Blast:
    """Send the bursts in turn, `window` of them under way, for so many seconds."""
    connection.socket.sendall(bursts[0])
    first = bytes(connection.receive())
    _require_success(first)
    length = len(first) + 4
    _require_success(connection.receive_exactly(length * (burst - 1))[-length + 4 :] if burst > 1 else first)
    sent = received = 0
    began = time.perf_counter()
    while not sent or time.perf_counter() - began < seconds:
        connection.socket.sendall(bursts[sent % len(bursts)])
        sent += 1
        if sent - received >= window:
            _require_success(connection.receive_exactly(length * burst)[-length + 4 :])
            received += 1
    while received < sent:
        _require_success(connection.receive_exactly(length * burst)[-length + 4 :])
        received += 1
    return Blast((sent + 1) * burst, sent * burst / (time.perf_counter() - began))


def acknowledge_each(connection: Connection, frames: Sequence[bytes], timeout_s: float) -> None:
    """Send each frame until it is acknowledged: after a start or a creation a leader may not serve yet."""
    deadline = time.monotonic() + timeout_s
    todo = list(frames)
    while todo:
        refused = []
        for at in range(0, len(todo), 100):
            some = todo[at : at + 100]
            connection.socket.sendall(b"".join(some))
            codes = [produced(connection.receive())[0] for _ in some]
            if set(codes) - {0, *_NOT_YET} or (any(codes) and time.monotonic() > deadline):
                raise AnswerError("Produce", max(codes))
            refused += [sent for sent, code in zip(some, codes, strict=True) if code]
        todo = refused
        if todo:
            time.sleep(0.005)


def _require_success(answer: bytes | memoryview) -> None:
    error, _ = produced(answer)
    if error:
        raise AnswerError("Produce", error)
