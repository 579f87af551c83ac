"""Frames that no client should send, and what becomes of the connection: closed, answered, or nothing."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tests.support.frames import frame, request_header

API_VERSIONS, METADATA, PRODUCE, FETCH, JOIN_GROUP = 18, 3, 0, 1, 11
MAX_REQUEST_BYTES = 104_857_600


def _request(key: int, version: int, body: bytes = b"", *, flexible: bool = False) -> bytes:
    return frame(request_header(key, version, 7, flexible=flexible) + body)


def bad_frames() -> Iterator[tuple[str, bytes]]:
    """(what it is, the bytes)."""
    for length in (0x7FFFFFFF, MAX_REQUEST_BYTES + 1, -1, -0x80000000, 0, 1, 3, 7):
        yield f"a frame that announces {length} bytes", struct.pack(">i", length) + b"\0" * 16
    whole = _request(METADATA, 1, struct.pack(">i", 0))
    for key in (999, -1, 4, 5, 6, 7, 93, 32767):
        yield f"unknown API key {key}", _request(key, 0)
    for key in (52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82):
        yield f"API key {key} of the controllers", _request(key, 0)
    for version in (-1, 14, 99, 32767):
        yield f"Metadata v{version}", _request(METADATA, version, struct.pack(">i", 0), flexible=version > 8)
    for version in (0, 1, 2, 14):
        yield f"Produce v{version}", _request(PRODUCE, version, struct.pack(">hii", 1, 100, 0), flexible=version > 8)
    yield "Fetch v3", _request(FETCH, 3, struct.pack(">iiiii", -1, 0, 0, 0, 0))
    for version in (-1, 5, 99):
        yield f"ApiVersions v{version}", _request(API_VERSIONS, version, flexible=version > 2)
    yield "bytes after the body", _request(METADATA, 1, struct.pack(">i", 0) + b"more")
    yield "bytes after an empty body", _request(API_VERSIONS, 0, b"more")
    for count in (-2, 5, 0x7FFFFFFF):
        yield f"an array of {count} that is not there", _request(METADATA, 1, struct.pack(">i", count))
    for length in (-2, 5, 0x7FFF):
        yield f"a string of {length} that is not there", _request(METADATA, 1, struct.pack(">ih", 1, length))
    yield "a null string where none may be", _request(METADATA, 1, struct.pack(">ih", 1, -1))
    yield "a string that is not UTF-8", _request(METADATA, 4, struct.pack(">ih", 1, 2) + b"\xff\xfe\0")
    yield "no body", _request(METADATA, 1)
    yield "a varint without end", _request(METADATA, 9, b"\xff" * 12, flexible=True)
    yield "a compact array of 2^31", _request(METADATA, 9, b"\x80\x80\x80\x80\x08", flexible=True)
    yield "an unknown tagged field", _request(METADATA, 9, b"\x01\x00\x00\x00\x01\x05\x02ab", flexible=True)
    yield "a tagged field that is cut", _request(METADATA, 9, b"\x01\x00\x00\x00\x01\x05\x7fab", flexible=True)
    yield (
        "two tagged fields with the same tag",
        _request(METADATA, 9, b"\x01\x00\x00\x00\x02\x05\x00\x05\x00", flexible=True),
    )
    for length in (-2, -32768, 32767):
        yield f"a client id of {length}", frame(struct.pack(">hhih", METADATA, 1, 7, length) + struct.pack(">i", 0))
    yield (
        "a client id that is not UTF-8",
        frame(struct.pack(">hhih", METADATA, 1, 7, 2) + b"\xff\xfe" + struct.pack(">i", 0)),
    )
    yield "no client id", frame(struct.pack(">hhi", METADATA, 1, 7))
    yield "HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield "TLS", bytes.fromhex("1603010200010001fc0303") + bytes(32)
    yield "a request, then garbage", whole + b"\xff" * 16


def cut_frames() -> Iterator[tuple[str, bytes]]:
    """Sent with the end of the stream behind them."""
    whole = _request(METADATA, 1, struct.pack(">i", 0))
    for size in (0, 2, 4, 8, len(whole) - 1, len(whole)):
        yield f"{size} of {len(whole)} bytes and the end", whole[:size]
