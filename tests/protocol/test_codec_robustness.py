"""Bad bytes: a decoder raises DecodeError and nothing else, soon, without taking memory that the bytes do not pay for."""

from __future__ import annotations

import struct
import time
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.message_values import NAMES, filled, message_class, random_message, versions
from tests.protocol.mutations import mutated

from ottla.protocol.api import decode_request_header
from ottla.protocol.primitives import DecodeError, uvarint

SEED = 20
MUTATIONS_PER_VERSION = 40


def only_decode_error(cls, data, version) -> None:
    try:
        message, end = cls.decode(data, 0, version)
    except DecodeError:
        return
    assert 0 <= end <= len(data)
    assert isinstance(message, cls)


@pytest.mark.parametrize("name", NAMES)
def test_mutations(name):
    cls, random = message_class(name), Random(f"{SEED} {name}")
    for version in versions(cls):
        raw = random_message(random, cls, version, nulls=True).to_bytes(version)
        for _ in range(MUTATIONS_PER_VERSION):
            data = mutated(random, raw)
            only_decode_error(cls, random.choice([bytes, bytearray, memoryview])(data), version)


@pytest.mark.parametrize("name", NAMES)
def test_every_truncation_is_refused(name):
    cls = message_class(name)
    for version in versions(cls):
        raw = filled(cls).to_bytes(version)
        for cut in range(len(raw)):
            with pytest.raises(DecodeError):
                cls.decode(memoryview(raw)[:cut], 0, version)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.binary(max_size=200))
def test_arbitrary_bytes(data, raw):
    cls = message_class(data.draw(st.sampled_from(NAMES)))
    only_decode_error(cls, raw, data.draw(st.sampled_from(versions(cls))))


@given(st.binary(max_size=60))
def test_arbitrary_request_headers(raw):
    for source in (raw, bytearray(raw), memoryview(raw)):
        try:
            *_, pos = decode_request_header(source)
        except DecodeError:
            continue
        assert 10 <= pos <= len(raw)


def bounded(cls, raw, version, *, peak, seconds):
    """`seconds` of this process's own work: the cores are shared."""
    tracemalloc.start()
    started = time.process_time()
    try:
        only_decode_error(cls, raw, version)
        assert tracemalloc.get_traced_memory()[1] < peak
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < seconds


def test_a_count_that_the_bytes_cannot_hold_allocates_nothing():
    for name in NAMES:
        cls = message_class(name)
        for version in versions(cls):
            for filler in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x00\x00\xff\xff"):
                bounded(cls, filler * 50, version, peak=300_000, seconds=2)


def test_a_count_over_the_bytes_left_is_refused_before_the_first_element():
    """Without the check a million strings are built first, only to find that one more is missing."""
    cls = message_class("DeleteTopicsRequest")
    body = bytes(1_000_000)
    bounded(cls, struct.pack(">i", len(body) + 1) + body, 3, peak=100_000, seconds=1)  # v3: an int32 count of strings
    bounded(cls, uvarint(len(body) + 2) + b"\x01" * len(body), 5, peak=100_000, seconds=1)  # v5: compact


@pytest.mark.parametrize("size", [0, 1, 2])
def test_time_and_memory_grow_with_the_bytes_only(size):
    """A known tagged field that lies about its size, over and over: each byte is still read once."""
    cls = message_class("FetchRequest")
    head = filled(cls).to_bytes(15)
    count = 20_000
    entry = b"\x00" + bytes((size,)) + b"\x00"  # tag 0 is cluster_id: a null string
    only_decode_error(cls, head[:-1] + uvarint(count) + entry * count, 15)
    bounded(cls, head[:-1] + uvarint(count) + entry * count, 15, peak=3_000_000, seconds=2)
    quorum = message_class("FetchResponse")  # tag 0 of v16+: an array of structs
    body = struct.pack(">ihi", 0, 0, 0) + b"\x01" + uvarint(count) + (b"\x00\x01\x01") * count
    bounded(quorum, body, 17, peak=3_000_000, seconds=2)
    nested = b"\x00\x00" + uvarint(30_001) + b"\x00\x02\x00\x01\x01\x00\x00\x01" * 30_000
    bounded(quorum, struct.pack(">ihi", 0, 0, 0) + b"\x01" + uvarint(count) + nested, 17, peak=30_000_000, seconds=5)
