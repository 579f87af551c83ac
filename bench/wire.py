"""A tiny blocking client: just the frames that the loads need, written by hand and independent of both servers.

It sends ready-made bytes and counts answers, so that the client costs little and the broker is what is measured.
Control calls use old, plain versions; Produce and Fetch use the newest that name topics by name (flexible, v12).
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ottla.protocol.crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
_CLIENT = b"bench"
_TAGS = b"\x00"


class WireError(Exception):
    """The server closed the connection or answered something else than was asked."""


class AnswerError(WireError):
    """The server answered an error code."""

    def __init__(self, api: str, code: int) -> None:
        super().__init__(f"{api} answered error {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Metadata:
    brokers: int
    led: int  # partitions that have a leader


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact(raw: bytes) -> bytes:
    return varint(len(raw) + 1) + raw


def read_varint(buffer: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def frame(api_key: int, version: int, correlation_id: int, body: bytes, *, flexible: bool = False) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT)) + _CLIENT
    payload = header + (_TAGS if flexible else b"") + body
    return struct.pack(">i", len(payload)) + payload


def batch(value: bytes, count: int = 1) -> bytes:
    """A record batch (v2, no codec) of `count` records with this value."""
    records = []
    for delta in range(count):
        body = b"\x00\x00" + varint(delta << 1) + b"\x01" + varint(len(value) << 1) + value + b"\x00"
        records.append(varint(len(body) << 1) + body)
    now = int(time.time() * 1000)
    counted = struct.pack(">hiqqqhii", 0, count - 1, now, now, -1, -1, -1, count) + b"".join(records)
    return struct.pack(">qiibI", 0, 9 + len(counted), -1, 2, crc32c(counted)) + counted


def produce(correlation_id: int, topic: str, partition: int, records: bytes, acks: int = 1) -> bytes:
    partitions = varint(2) + struct.pack(">i", partition) + _compact(records) + _TAGS
    topics = varint(2) + _compact(topic.encode()) + partitions + _TAGS
    body = varint(0) + struct.pack(">hi", acks, 30_000) + topics + _TAGS
    return frame(PRODUCE, 12, correlation_id, body, flexible=True)


def produced(answer: bytes | memoryview) -> tuple[int, int]:
    """Error code and base offset of a one-partition Produce v12 answer (without its length prefix)."""
    at = 4 + 1  # correlation id, tags
    _, at = read_varint(answer, at)
    length, at = read_varint(answer, at)
    _, at = read_varint(answer, at + length - 1)
    _, error, base_offset = struct.unpack_from(">ihq", answer, at)
    return error, base_offset


def fetch(
    correlation_id: int, topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int = 500
) -> bytes:
    partitions = varint(2) + struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + _TAGS
    topics = varint(2) + _compact(topic.encode()) + partitions + _TAGS
    start = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
    return frame(FETCH, 12, correlation_id, start + topics + varint(1) + _compact(b"") + _TAGS, flexible=True)


def fetched(answer: memoryview) -> memoryview:
    """The records of a one-partition Fetch v12 answer (without its length prefix)."""
    at = 4 + 1 + 4  # correlation id, tags, throttle time
    (error,) = struct.unpack_from(">h", answer, at)
    _, at = read_varint(answer, at + 2 + 4)
    length, at = read_varint(answer, at)
    _, at = read_varint(answer, at + length - 1)
    (partition_error,) = struct.unpack_from(">h", answer, at + 4)
    if error or partition_error:
        raise AnswerError("Fetch", error or partition_error)
    aborted, at = read_varint(answer, at + 4 + 2 + 8 + 8 + 8)
    if aborted > 1:
        raise WireError("fetch answered aborted transactions that nobody wrote")
    length, at = read_varint(answer, at + 4)
    return answer[at : at + length - 1] if length else answer[:0]


def walk(records: memoryview) -> tuple[int, int]:
    """Number of records and next offset of the whole batches; the last one may be cut."""
    at = count = next_offset = 0
    while at + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        (last_delta,) = struct.unpack_from(">i", records, at + 23)
        (batch_count,) = struct.unpack_from(">i", records, at + 57)
        next_offset, count, at = base_offset + last_delta + 1, count + batch_count, at + 12 + length
    return count, next_offset


class Connection:
    """One blocking connection; requests are answered in order."""

    def __init__(self, port: int, *, timeout_s: float = 30.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._buffer = bytearray(4096)  # grows to the largest answer: thousands of connections may be open

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def receive_exactly(self, count: int) -> memoryview:
        """The next `count` bytes; valid until the next call."""
        if count > len(self._buffer):
            self._buffer = bytearray(count)
        view, have = memoryview(self._buffer), 0
        while have < count:
            got = self.socket.recv_into(view[have:count])
            if not got:
                raise WireError("the server closed the connection")
            have += got
        return view[:count]

    def receive(self) -> memoryview:
        """The next answer, from its correlation id on; valid until the next call."""
        (length,) = struct.unpack(">i", self.receive_exactly(4))
        return self.receive_exactly(length)

    def call(self, api_key: int, version: int, body: bytes) -> memoryview:
        """A request of a plain (not flexible) version; the answer after its correlation id."""
        self._correlation_id += 1
        self.socket.sendall(frame(api_key, version, self._correlation_id, body))
        answer = self.receive()
        if struct.unpack_from(">i", answer)[0] != self._correlation_id:
            raise WireError("an answer to another request")
        return answer[4:]

    def api_versions(self) -> None:
        (error,) = struct.unpack_from(">h", self.call(API_VERSIONS, 0, b""))
        if error:
            raise AnswerError("ApiVersions", error)

    def metadata(self) -> Metadata:
        """All topics, Metadata v4 (no creation)."""
        answer = self.call(METADATA, 4, struct.pack(">ib", -1, 0))
        (brokers,) = struct.unpack_from(">i", answer, 4)
        at = 8
        for _ in range(brokers):
            at = _skip_string(answer, at + 4) + 4
            at = _skip_string(answer, at)
        at = _skip_string(answer, at) + 4
        (topics,) = struct.unpack_from(">i", answer, at)
        at, led = at + 4, 0
        for _ in range(topics):
            at = _skip_string(answer, at + 2) + 1
            (partitions,) = struct.unpack_from(">i", answer, at)
            at += 4
            for _ in range(partitions):
                error, _, leader, replicas = struct.unpack_from(">hiii", answer, at)
                led += error == 0 and leader >= 0
                at += 14 + 4 * replicas
                (isr,) = struct.unpack_from(">i", answer, at)
                at += 4 + 4 * isr
        return Metadata(brokers, led)

    def create_topic(self, name: str, partitions: int, timeout_ms: int = 60_000) -> None:
        topic = _string(name) + struct.pack(">ihii", partitions, 1, 0, 0)
        answer = self.call(CREATE_TOPICS, 4, struct.pack(">i", 1) + topic + struct.pack(">ib", timeout_ms, 0))
        at = _skip_string(answer, 8)
        (error,) = struct.unpack_from(">h", answer, at)
        if error:
            raise AnswerError("CreateTopics", error)

    def delete_topic(self, name: str, timeout_ms: int = 60_000) -> None:
        answer = self.call(DELETE_TOPICS, 3, struct.pack(">i", 1) + _string(name) + struct.pack(">i", timeout_ms))
        (error,) = struct.unpack_from(">h", answer, _skip_string(answer, 8))
        if error:
            raise AnswerError("DeleteTopics", error)

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """The latest offset of each partition, ListOffsets v4."""
        wanted = b"".join(struct.pack(">iiq", index, -1, -1) for index in range(partitions))
        body = struct.pack(">ibi", -1, 0, 1) + _string(topic) + struct.pack(">i", partitions) + wanted
        answer = self.call(LIST_OFFSETS, 4, body)
        at = _skip_string(answer, 8) + 4
        offsets = [0] * partitions
        for _ in range(partitions):
            index, error, _, offset, _ = struct.unpack_from(">ihqqi", answer, at)
            if error:
                raise AnswerError("ListOffsets", error)
            offsets[index], at = offset, at + 26
        return offsets


def _skip_string(buffer: memoryview, at: int) -> int:
    length: int = struct.unpack_from(">h", buffer, at)[0]
    return at + 2 + max(length, 0)  # -1 is null
