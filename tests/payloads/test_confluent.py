"""Confluent's wire format, against the bytes of Confluent's own serializers where they write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.payloads.confluent import SchemaFramingError, framed, guid_in_header, message_indexes, unframed


@given(st.integers(0, 2**32 - 1), st.binary(max_size=20))
def test_what_is_framed_comes_back(schema_id, data):
    assert unframed(framed(schema_id, data)) == (schema_id, data)


def test_bytes_of_confluents_serializer():
    from confluent_kafka.schema_registry.serde import SchemaId

    assert framed(70_000, b"x") == SchemaId("AVRO", 70_000).id_to_bytes() + b"x"


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\1", b"\1\0\0\0\1x", b"text"])
def test_data_without_a_prefix_is_refused(data):
    with pytest.raises(SchemaFramingError, match="zero byte"):
        unframed(data)


@pytest.mark.parametrize(
    ("data", "indexes", "start"),
    [(b"\0rest", (0,), 1), (b"\x02\x00rest", (0,), 2), (b"\x04\x02\x04rest", (1, 2), 3), (b"\x02\x80\x02", (128,), 3)],
)
def test_message_indexes(data, indexes, start):
    assert message_indexes(data) == (indexes, start)


@pytest.mark.parametrize("data", [b"", b"\x04\x02", b"\x01", b"\x02\x01", b"\xff" * 12, b"\xfe\xff\x03"])
def test_impossible_message_indexes_are_refused(data):
    """No bytes, a path cut off, a negative count, a negative index, an endless varint, and a count over the limit."""
    with pytest.raises(SchemaFramingError):
        message_indexes(data)


def test_a_guid_in_a_header():
    guid = bytes(range(16))
    assert guid_in_header(b"\1" + guid) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    for value in (None, b"", guid, b"\0" + guid, b"\1" + guid + b"x"):
        with pytest.raises(SchemaFramingError):
            guid_in_header(value)
