"""Frames out of a byte stream, in any cut."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.framing import FrameDecoder, FramingError
from ottla.protocol.primitives import DecodeError


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 20), min_size=1, max_size=20))
def test_any_cut_gives_the_same_frames(payloads, cuts):
    stream = b"".join(map(framed, payloads))
    decoder, got, pos, turn = FrameDecoder(), [], 0, 0
    while pos < len(stream):
        step = cuts[turn % len(cuts)]
        decoder.feed(memoryview(stream)[pos : pos + step])
        got += decoder.frames()
        pos, turn = pos + step, turn + 1
    assert got == payloads
    assert decoder.pending == 0


def test_many_frames_in_one_piece_are_compacted():
    payload = b"x" * 1000
    decoder = FrameDecoder()
    decoder.feed(framed(payload) * 500 + b"\0\0")
    assert list(decoder.frames()) == [payload] * 500
    assert decoder.pending == 2
    assert len(decoder._buffer) < 70_000


def test_an_unfinished_frame_waits():
    decoder = FrameDecoder()
    decoder.feed(framed(b"abc")[:-1])
    assert decoder.next_frame() is None
    assert decoder.pending == 6
    decoder.feed(b"c")
    assert decoder.next_frame() == b"abc"


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_impossible_lengths_are_refused_before_the_bytes(size):
    decoder = FrameDecoder(max_bytes=100)
    decoder.feed(struct.pack(">i", size))
    with pytest.raises(FramingError, match=str(size)) as raised:
        decoder.next_frame()
    assert isinstance(raised.value, DecodeError)


def test_the_limit_itself_is_allowed():
    decoder = FrameDecoder(max_bytes=100)
    decoder.feed(framed(b"y" * 100))
    assert decoder.next_frame() == b"y" * 100


def test_an_announced_length_allocates_nothing():
    tracemalloc.start()
    try:
        for decoder in [FrameDecoder() for _ in range(20)]:
            decoder.feed(struct.pack(">i", 100 * 1024 * 1024) + bytes(1024))
            assert decoder.next_frame() is None
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
