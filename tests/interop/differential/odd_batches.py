"""Batches that no producer would make, with a CRC that fits: odd times, offsets, headers and identities.

Their records can be read: a batch whose cannot is opaque to Ottla (see allowed.NOT_ASKED), and so is a header that lies about
its latest time.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from hypothesis import strategies as st

from ottla.protocol.records import assemble_batch, encode_record, write_crc
from tests.interop.differential.batches import T0

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_FIELDS = {
    "base_offset": (0, ">q"), "leader_epoch": (12, ">i"), "magic": (16, ">b"), "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"), "producer_id": (43, ">q"), "producer_epoch": (51, ">h"), "base_sequence": (53, ">i"),
    "record_count": (57, ">i"), "batch_length": (8, ">i"),
}  # fmt: skip


class OddRecord(NamedTuple):
    time: int
    """After the batch's base timestamp."""
    offset: int
    """Beyond its index."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class OddBatch(NamedTuple):
    records: list[OddRecord]
    codec: int = 0
    at: int = T0
    fields: tuple[tuple[str, int], ...] = ()
    """Header fields that are written over; the CRC is made anew."""

    def in_order(self) -> OddBatch:
        """The same with offsets 0, 1, 2 ...: what is compressed is opaque to Ottla."""
        return self._replace(records=[record._replace(offset=0) for record in self.records])

    def encoded(self) -> bytes:
        payload = bytearray()
        for index, record in enumerate(self.records):
            encode_record(payload, index + record.offset, record.time, record.key, record.value, record.headers)
        latest = max(self.at + record.time for record in self.records)
        data = assemble_batch(
            payload, len(self.records), base_offset=0, last_offset_delta=len(self.records) - 1, base_timestamp=self.at,
            max_timestamp=latest, attributes=self.codec,
        )  # fmt: skip
        for name, value in self.fields:
            position, form = _FIELDS[name]
            data[position : position + struct.calcsize(form)] = struct.pack(form, value)
        write_crc(data, 0, len(data))
        return bytes(data)


def old_message(magic: int, value: bytes, *, codec: int = 0, broken: bool = False) -> bytes:
    """A message of format 0 or 1, which Produce took before version 3."""
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", T0) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    crc = zlib.crc32(body) ^ (1 if broken else 0)
    return struct.pack(">qiI", 0, len(body) + 4, crc) + body


_record = st.builds(
    OddRecord,
    st.sampled_from([0, 0, 0, 1, 10, -1, -5, 100]),
    st.sampled_from([0, 0, 0, 0, 0, 1, 2]),
    st.sampled_from([b"k", b"k", b"l", None, b""]),
    st.none() | st.binary(max_size=40),
    st.sampled_from([(), (), (("h", b"v"),), (("", None), ("", b""))]),
)
_fields = st.one_of(
    st.just({}),
    st.just({}),
    st.fixed_dictionaries({"base_offset": st.sampled_from([1, -1, LONG_MAX, -LONG_MAX])}),
    st.fixed_dictionaries({"leader_epoch": st.sampled_from([0, 5, -7, INT_MAX])}),
    st.fixed_dictionaries({"magic": st.sampled_from([0, 1, 3, -1, 127])}),
    st.fixed_dictionaries({"attributes": st.sampled_from([0x08, 0x10, 0x20, 0x30, 0x40, 0x80, 0x4000, -0x8000, 5, 6, 7])}),
    st.fixed_dictionaries({"last_offset_delta": st.sampled_from([0, 1, 2, 3, -1, INT_MAX, -INT_MAX])}),
    st.fixed_dictionaries({"record_count": st.sampled_from([0, 1, 2, 3, -1, INT_MAX])}),
    st.fixed_dictionaries({"batch_length": st.sampled_from([0, -1, 48, 49, 50, INT_MAX])}),
    st.fixed_dictionaries(
        {
            "producer_id": st.sampled_from([-1, -2, 1_000_000]),
            "producer_epoch": st.sampled_from([-1, 0, 1, 32767]),
            "base_sequence": st.sampled_from([-1, -2, 0, 1, INT_MAX]),
        }
    ),
)  # fmt: skip
odd_batches: st.SearchStrategy[OddBatch] = st.builds(
    OddBatch,
    st.lists(_record, min_size=1, max_size=4),
    st.integers(0, 4),
    st.sampled_from([T0, T0, T0, -1, 0, 3, 4_000_000_000_000]),
    _fields.map(lambda fields: tuple(fields.items())),
).map(lambda made: made.in_order() if made.codec else made)
