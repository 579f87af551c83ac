"""FrameBuffer: any frames in any chunks come out as they went in, and memory follows the bytes that arrived."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.runtime.buffers import SCRATCH_BYTES, BufferPool, FrameBuffer, FrameError

MAX_FRAME = 4 * 1024 * 1024
sizes = st.one_of(
    st.integers(0, 40),
    st.integers(0, 3000),
    st.sampled_from([16 * 1024 - 5, 16 * 1024 - 4, 16 * 1024, 128 * 1024 - 4, 128 * 1024, SCRATCH_BYTES, 1_200_000]),
)


def stream_of(frame_sizes: list[int]) -> tuple[list[bytes], bytes]:
    frames = [
        bytes((number + i) % 251 for i in range(min(size, 64))).ljust(size, b"\7")
        for number, size in enumerate(frame_sizes)
    ]
    return frames, b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def feed(buffer: FrameBuffer, stream: bytes, cuts: list[int], stop_after: list[int] | None = None) -> list[bytes]:
    """As a channel does it: read, take frames (now and then not all of them, as when the connection is busy), settle."""
    got: list[bytes] = []
    at, turn = 0, 0
    while at < len(stream):
        chunk = stream[at : at + (cuts[turn % len(cuts)] if cuts else len(stream))]
        target = buffer.target()
        assert len(target) > 0, "no room: a read of 0 bytes looks like the end of the stream"
        count = min(len(chunk), len(target))
        target[:count] = chunk[:count]
        buffer.end += count
        at += count
        limit = stop_after[turn % len(stop_after)] if stop_after else None
        while True:
            taken = 0
            while limit is None or taken < limit:
                frame = buffer.next_frame()
                if frame is None:
                    break
                got.append(bytes(frame))
                taken += 1
            buffer.settle()
            if limit is None or taken < limit:
                break  # a busy connection reads nothing new before all that arrived is handled
        turn += 1
    return got


@settings(max_examples=200)
@given(
    st.lists(sizes, max_size=12),
    st.lists(st.integers(1, 400_000), max_size=6),
    st.none() | st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
@example([0, 0, 0], [1], None)
@example([1_200_000, 5, 1_200_000], [SCRATCH_BYTES], [1])
@example([16 * 1024 - 4, 16 * 1024 - 3], [16 * 1024, 1], None)
def test_any_chunking_gives_the_same_frames(frame_sizes, cuts, stop_after):
    frames, stream = stream_of(frame_sizes)
    pool = BufferPool()
    buffer = FrameBuffer(pool, MAX_FRAME)
    assert feed(buffer, stream, cuts, stop_after) == frames
    assert buffer.start == buffer.end


@given(st.lists(st.tuples(st.integers(0, 3), sizes, st.integers(1, 50_000)), max_size=20))
def test_connections_that_share_a_pool_do_not_mix(work):
    """Between a channel's reads others use the scratch buffer and the pool."""
    pool = BufferPool()
    buffers = [FrameBuffer(pool, MAX_FRAME) for _ in range(4)]
    sent: list[list[bytes]] = [[] for _ in buffers]
    pending = [b"" for _ in buffers]
    got: list[list[bytes]] = [[] for _ in buffers]
    for number, (who, size, cut) in enumerate(work):
        frame = bytes([number]) * size
        sent[who].append(frame)
        pending[who] += struct.pack(">i", size) + frame
        head, pending[who] = pending[who][:cut], pending[who][cut:]
        got[who] += feed(buffers[who], head, [])
    for who, buffer in enumerate(buffers):
        got[who] += feed(buffer, pending[who], [])
    assert got == sent


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME + 1, 2**31 - 1])
def test_lengths_that_no_frame_has(size):
    buffer = FrameBuffer(BufferPool(), MAX_FRAME)
    with pytest.raises(FrameError):
        feed(buffer, struct.pack(">i", size) + b"x", [])


def test_frames_before_a_bad_length_are_given():
    buffer = FrameBuffer(BufferPool(), MAX_FRAME)
    data = struct.pack(">i2si", 2, b"ok", -1)
    buffer.target()[: len(data)] = data
    buffer.end += len(data)
    assert bytes(buffer.next_frame() or b"") == b"ok"
    with pytest.raises(FrameError):
        buffer.next_frame()


@pytest.mark.parametrize("arrived", [1, 4, 1024, 16 * 1024, 100_000, 1_000_000])
def test_memory_follows_what_arrived_not_what_was_announced(arrived):
    buffer = FrameBuffer(BufferPool(), 100 * 1024 * 1024)
    stream = (struct.pack(">i", 100 * 1024 * 1024) + bytes(arrived))[:arrived]
    assert feed(buffer, stream, [50_000]) == []
    assert buffer.own is not None
    assert len(buffer.own) <= len(BufferPool().take(4 * arrived))  # fourfold, in the pool's sizes


def test_a_growing_frame_is_copied_a_few_times_only():
    """Fourfold growth: the moves of a 50 MiB frame add up to less than half of it again."""
    pool = BufferPool()
    buffer = FrameBuffer(pool, 100 * 1024 * 1024)
    moved = []
    original = FrameBuffer._move_to

    class Counting(FrameBuffer):
        __slots__ = ()

        def _move_to(self, new):
            moved.append(self.end - self.start)
            original(self, new)

    buffer = Counting(pool, 100 * 1024 * 1024)
    size = 50 * 1024 * 1024
    (frame,) = feed(buffer, struct.pack(">i", size) + bytes(size), [65536])
    assert len(frame) == size
    assert sum(moved) < size
    assert len(moved) < 12


def test_buffers_return_to_the_pool():
    pool = BufferPool()
    for _ in range(3):
        buffer = FrameBuffer(pool, MAX_FRAME)
        feed(buffer, struct.pack(">i", 100) + b"half", [])
        own = buffer.own
        assert own is not None
        buffer.release()
        assert pool.take(100) is own
        pool.give(own)


def test_the_pool_keeps_a_few_only():
    pool = BufferPool()
    for _ in range(1000):
        pool.give(memoryview(bytearray(16 * 1024)))
    assert sum(map(len, pool._spare)) == 64
