"""The names of things. Kafka's nouns, no behaviour beyond parsing and printing them.

Offsets, epochs and numeric ids are plain ints behind aliases: the alias documents a signature and costs nothing on
the produce path, where a NewType call per value would show.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import NamedTuple, NewType, TypeAlias

NodeId: TypeAlias = int
Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
ProducerId: TypeAlias = int
ProducerEpoch: TypeAlias = int
TimestampMs: TypeAlias = int

Uuid = NewType("Uuid", bytes)
"""A Kafka Uuid: its 16 raw bytes, big-endian, as they stand on the wire and in files."""

ZERO_UUID = Uuid(bytes(16))
RESERVED_UUIDS = 100
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The fixed topic id of `__cluster_metadata` (Uuid(0, 1))."""

LOST_DIRECTORY_ID = Uuid(bytes(15) + b"\x01")
UNASSIGNED_DIRECTORY_ID = ZERO_UUID
MIGRATING_DIRECTORY_ID = Uuid(bytes(15) + b"\x02")

METADATA_TOPIC = "__cluster_metadata"
METADATA_DIR = f"{METADATA_TOPIC}-0"
"""The folder of its one partition."""

NO_PRODUCER_ID: ProducerId = -1
NO_PRODUCER_EPOCH: ProducerEpoch = -1
NO_LEADER_EPOCH: LeaderEpoch = -1
NO_TIMESTAMP: TimestampMs = -1
FOREVER_MS: TimestampMs = 1 << 62
"""The latest time that is written: a duration may be Long.MAX_VALUE, and the difference of two times must fit too."""
NO_NODE: NodeId = -1


def time_after(now_ms: TimestampMs, duration_ms: int) -> TimestampMs:
    """`now_ms + duration_ms` as a time that fits into an int64; Kafka overflows, and "never" becomes "long ago"."""
    return min(now_ms + duration_ms, FOREVER_MS)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_str(uuid: Uuid) -> str:
    """Kafka prints a Uuid as unpadded URL-safe base64 (22 characters)."""
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_str(text: str) -> Uuid:
    """The inverse of `uuid_to_str`; ValueError unless it is exactly 16 bytes."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a Kafka uuid (22 characters of URL-safe base64)") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} decodes to {len(raw)} bytes; a Kafka uuid has 16")
    return Uuid(raw)


def new_uuid(token_bytes: Callable[[int], bytes]) -> Uuid:
    """A random (version 4) uuid by Kafka's rules. The first hundred uuids are reserved. The text of a uuid has no
    leading dash, because a command line would read it as a flag.
    """
    while True:
        raw = bytearray(token_bytes(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        uuid = Uuid(bytes(raw))
        if int.from_bytes(uuid, "big") > RESERVED_UUIDS and not uuid_to_str(uuid).startswith("-"):
            return uuid
