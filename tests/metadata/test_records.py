"""Frames: every record type round-trips in the version that Kafka would choose; bytes that are not a frame are refused."""

from __future__ import annotations

import pytest

from ottla.metadata.records import (
    RECORD_CLASSES,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    decode_frame,
    encode_frame,
    record_version,
)
from ottla.model.ids import Uuid
from ottla.protocol.primitives import DecodeError

DIRECTORY = Uuid(bytes(range(200, 216)))


def test_all_26_records_are_known() -> None:
    assert len(RECORD_CLASSES) == 26


@pytest.mark.parametrize("kind", RECORD_CLASSES.values(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("metadata_version", [7, 14, 21, 30])
def test_round_trip(kind: type, metadata_version: int) -> None:
    record = kind()
    assert decode_frame(encode_frame(record, metadata_version)) == record


def test_golden_frame() -> None:
    frame = bytes.fromhex("010c00116d657461646174612e76657273696f6e001e00")
    assert encode_frame(FeatureLevelRecord("metadata.version", 30), 30) == frame
    assert decode_frame(frame) == FeatureLevelRecord("metadata.version", 30)


@pytest.mark.parametrize(
    ("record", "versions"),
    [
        (RegisterBrokerRecord(), {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4}),
        (PartitionRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (PartitionChangeRecord(), {7: 0, 17: 1, 23: 2}),
        (BrokerRegistrationChangeRecord(1, 2, fenced=1), {30: 0}),
        (BrokerRegistrationChangeRecord(1, 2, in_controlled_shutdown=1), {30: 1}),
        (BrokerRegistrationChangeRecord(1, 2, log_dirs=[DIRECTORY]), {30: 2}),
        (BrokerRegistrationChangeRecord(1, 2, cordoned_log_dirs=[]), {30: 3}),
    ],
)
def test_versions(record: object, versions: dict[int, int]) -> None:
    assert {level: record_version(record, level) for level in versions} == versions


@pytest.mark.parametrize(
    "frame", [b"", b"\x01", b"\x01\x0c", b"\x02\x0c\x00", b"\x01\x63\x00", b"\x01\x0c\x07", b"\x01\x14\x00\x00\x00"]
)
def test_what_is_not_a_frame(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_frame(frame)
