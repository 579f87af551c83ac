"""Variable-length integers and tagged fields, at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.primitives import DecodeError, read_uvarint, skip_tags, uvarint, write_tags


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**28 - 1, "ffffff7f"),
        (2**28, "8080808001"),
        (2**31 - 1, "ffffffff07"),
    ],
)
def test_uvarint_edges(value, raw):
    assert uvarint(value).hex() == raw
    assert read_uvarint(bytes.fromhex("aa" + raw + "bb"), 1) == (value, 1 + len(raw) // 2)


@given(st.integers(0, 2**31 - 1))
def test_uvarint_round_trip(value):
    raw = uvarint(value)
    assert read_uvarint(raw, 0) == (value, len(raw))


def test_a_longer_form_of_a_small_number_is_read_as_kafka_reads_it():
    assert read_uvarint(bytes.fromhex("8080808000"), 0) == (0, 5)


@pytest.mark.parametrize("raw", ["808080808000", "ffffffffff00", "ffffffffffffffffff01"])
def test_more_than_five_bytes_are_refused(raw):
    with pytest.raises(DecodeError, match="more than five bytes"):
        read_uvarint(bytes.fromhex(raw), 0)


@pytest.mark.parametrize("raw", ["8080808008", "ffffffff0f", "ffffffff7f"])
def test_over_an_int_is_refused(raw):
    with pytest.raises(DecodeError, match="over 2147483647"):
        read_uvarint(bytes.fromhex(raw), 0)


@given(st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=4))
def test_unknown_tags_are_skipped(tags):
    out: list[bytes] = []
    write_tags(out, sorted(tags.items()))
    raw = b"".join(out)
    assert skip_tags(raw + b"next", 0) == len(raw)
    if tags and max(tags.items())[1]:
        with pytest.raises(DecodeError):
            skip_tags(raw[:-1], 0)
