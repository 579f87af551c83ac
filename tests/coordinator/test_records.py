"""The bytes of `__consumer_offsets`: golden ones, and those that a real Kafka writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.records import (
    _KIND_RECORDS,
    GroupKindRecord,
    GroupMetadataRecord,
    OffsetCommitRecord,
    _schemas,
    decode,
    encode,
    offset_commit_value,
)
from ottla.model.ids import Uuid
from ottla.protocol.generated.group_metadata_value import GroupMetadataValue, MemberMetadata
from ottla.protocol.primitives import DecodeError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)


@given(TEXT, TEXT, INT32, INT64, INT32, TEXT, INT64, st.none() | INT64, st.binary(min_size=16, max_size=16))
def test_an_offset_commit_survives_its_bytes(
    group: str,
    topic: str,
    partition: int,
    offset: int,
    epoch: int,
    metadata: str,
    at: int,
    expires: int | None,
    raw: bytes,
) -> None:
    # The version with an expiry has no room for the leader epoch and the topic id.
    topic_id, epoch = (Uuid(raw), epoch) if expires is None else (Uuid(bytes(16)), -1)
    value = offset_commit_value(offset, epoch, metadata, at, -1 if expires is None else expires, topic_id)
    record = OffsetCommitRecord(group, topic, partition, value)
    assert decode(*encode(record)) == record


@given(TEXT, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.lists(st.tuples(TEXT, st.none() | TEXT)))
def test_a_group_survives_its_bytes(
    group: str,
    kind: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    at: int,
    names: list[tuple[str, str | None]],
) -> None:
    members = [MemberMetadata(name, instance, "c", "/h", 1, 2, b"s", b"a") for name, instance in names]
    record = GroupMetadataRecord(group, GroupMetadataValue(kind, generation, protocol, leader, at, members))
    assert decode(*encode(record)) == record


def test_tombstones_have_no_value() -> None:
    for record in (OffsetCommitRecord("g", "t", 3, None), GroupMetadataRecord("g", None)):
        key, value = encode(record)
        assert value is None
        assert decode(key, None) == record


def test_golden_bytes() -> None:
    """As Apache Kafka 4.3.1 wrote them (key type, then value version, first)."""
    record = OffsetCommitRecord(
        "g", "t", 3, offset_commit_value(5, -1, "m", 1_700_000_000_000, -1, Uuid(bytes(range(16))))
    )
    key, value = encode(record)
    assert key.hex() == "000100016700017400000003"
    assert value is not None
    assert value.hex() == ("00040000000000000005ffffffff026d0000018bcfe56800010010000102030405060708090a0b0c0d0e0f")
    key, value = encode(GroupMetadataRecord("g", GroupMetadataValue("consumer", 2, "range", "m-1", 7, [])))
    assert key.hex() == "0002000167"
    assert value is not None
    assert value.hex() == ("00030008636f6e73756d657200000002000572616e676500036d2d31000000000000000700000000")


def test_records_of_unknown_types_are_passed_over() -> None:
    assert decode(b"\x00\x63\x00\x01g", b"\x00\x00rest") is None


@pytest.mark.parametrize("key_type", sorted(_KIND_RECORDS))
def test_records_of_every_kind_of_group_survive_their_bytes(key_type: int) -> None:
    key_schema, value_schema = _schemas(key_type)
    for value in (value_schema(), None):
        record = GroupKindRecord(key_schema(), value)
        key, body = encode(record)
        assert key[:2] == key_type.to_bytes(2, "big")
        assert decode(key, body) == record


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x01", b"\x00\x02\x7f\xff", b"\x00\x01\x00\x01g"])
def test_a_broken_key_is_an_error(key: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(key, None)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x63", b"\x00\x03\x00"])
def test_a_broken_value_is_an_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(encode(GroupMetadataRecord("g", None))[0], value)
