"""One encrypted file behind the File seam: a header, then sealed frames; nothing above notices.

    file  = header (`ottla.security.file_headers`), frame ...
    frame = payload length (4), kind (1), nonce (12); AES-256-GCM of the payload with its tag

Every write at the end of a file is one frame or more of at most 64 KiB; a frame is never written again, so a torn write
costs the torn frame and nothing before it. A cut inside a frame is a frame of its own that says where the file now ends.
The file's key is derived from the topic's key and the salt. A frame is authenticated with its position and with the header's
tag, so neither frames nor files can be moved. Positions above are those of the plain bytes: `_starts` maps them. Encryption
can be switched on over existing data and covers what is written from then on: files that were plain then stay so, and no
other plain file is accepted (`ottla.security.encrypted_since`).
"""

from __future__ import annotations

import io
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.env.logging import get_logger
from ottla.env.seams import File
from ottla.security.file_headers import (
    HEADER_BYTES,
    MAGIC,
    MAX_HEADER_BYTES,
    NO_TOPIC_ID,
    VERSION,
    FilePlace,
    check_owner,
    checked_tag,
    new_header,
    parse_header,
)
from ottla.security.keystore import KeyStore, derived_key

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = get_logger(__name__)

FRAME_BYTES = 64 * 1024
READ_BYTES = 1024 * 1024
_SPARE_BYTES = 1024 * 1024 + 64 * 1024
_DATA, _CUT = 1, 2
_FRAME = Struct(">IB12s")
_PLACE = Struct(">QIB")
_SIZE = Struct(">Q")
_TAG = 16

_spare: list[bytearray] = []
"""A buffer for sealed frames, kept because fresh memory costs more than the cipher. Also used by threads: only pop and
append, which are one step each."""


def _take(size: int) -> bytearray:
    if size > _SPARE_BYTES:
        return bytearray(size)
    try:
        return _spare.pop()
    except IndexError:
        return bytearray(_SPARE_BYTES)


def _give(buffer: bytearray) -> None:
    if len(buffer) == _SPARE_BYTES and len(_spare) < 2:
        _spare.append(buffer)


_nonces: list[bytes] = []


def _nonce() -> bytes:
    """Random, each used once; drawn in bulk, for the system call is a third of a small append."""
    try:
        return _nonces.pop()
    except IndexError:
        drawn = os.urandom(12 * 256)
        _nonces.extend(drawn[at : at + 12] for at in range(12, len(drawn), 12))
        return drawn[:12]


@cache
def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag


class EncryptedFile:
    """One open file. Frames are found when it is opened; the last one that was read is kept, for headers are read in
    small steps.
    """

    def __init__(self, inner: File, keys: KeyStore, place: FilePlace, topic_id: Callable[[], bytes | None]) -> None:
        self._inner = inner
        self._keys = keys
        self._place = place
        self._topic_id = topic_id
        self.path = inner.path
        self._cipher: Any = None
        self._tag = b""
        """Of the header; every frame is authenticated with it. Files of version 1 have none."""
        self._clean = False
        self._reset()
        self._scan()

    def _reset(self) -> None:
        self._starts: list[int] = []
        self._places: list[tuple[int, int, int]] = []
        """Of each frame: physical position of its header, payload bytes, how many of them count."""
        self._end = 0
        self._physical_end = 0
        self._last: tuple[int, bytes] = (-1, b"")

    # Frames

    def _open_header(self, start: bytes) -> bool:
        """False when there is no whole header."""
        if len(start) > 8 and start.startswith(MAGIC) and start[8] not in HEADER_BYTES:
            raise OSError(f"{self.path}: encryption of version {start[8]} is not known here")
        header = parse_header(start)
        if header is None:
            return False  # torn, or zeros: a power cut took what was written
        key = self._keys.file_key(header.key_id, header.salt)
        check_owner(self.path, self._place, self._keys.topic_of(header.key_id, header.salt))
        if header.version == VERSION:
            self._tag = checked_tag(self.path, start, self._place, self._topic_id(), key)
        self._cipher = _cipher(key)
        self._physical_end = HEADER_BYTES[header.version]
        return True

    def _scan(self) -> None:
        """Find the frames from where the known ones end. What is not a whole frame at the end is not there."""
        size = self._inner.size()
        if self._cipher is None and not (size and self._open_header(self._inner.pread(MAX_HEADER_BYTES, 0))):
            return
        position = self._physical_end
        while position + _FRAME.size <= size:
            length, kind, _ = _FRAME.unpack(self._inner.pread(_FRAME.size, position))
            after = position + _FRAME.size + length + _TAG
            if kind not in (_DATA, _CUT) or not 0 < length <= FRAME_BYTES or after > size:
                break
            if kind == _DATA:
                self._starts.append(self._end)
                self._places.append((position, length, length))
                self._end += length
            else:
                sealed = self._inner.pread(_FRAME.size + length + _TAG, position)
                cut = self._unseal(sealed, self._end)
                if cut is None:
                    break
                self._forget_from(_SIZE.unpack(cut)[0])
            position = after
        self._physical_end = position

    def _forget_from(self, size: int) -> None:
        """The plain bytes from `size` on do not count any more."""
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._places.pop()
        if self._starts:
            position, length, _ = self._places[-1]
            self._places[-1] = (position, length, size - self._starts[-1])
        self._end = size
        self._last = (-1, b"")

    def _seal(self, payload: memoryview | bytes, start: int, kind: int) -> bytes:
        nonce = _nonce()
        length = len(payload)
        sealed: bytes = self._cipher.encrypt(nonce, payload, _PLACE.pack(start, length, kind) + self._tag)
        return _FRAME.pack(length, kind, nonce) + sealed

    def _unseal(self, frame: Buffer, start: int) -> bytes | None:
        length, kind, nonce = _FRAME.unpack_from(frame)
        sealed = memoryview(frame)[_FRAME.size :]
        try:
            plain: bytes = self._cipher.decrypt(nonce, sealed, _PLACE.pack(start, length, kind) + self._tag)
        except _invalid_tag():
            return None
        return plain

    # The seam

    def pread(self, length: int, position: int) -> bytes:
        if position + length > self._end and self._inner.size() > self._physical_end:
            self._scan()  # written through another opening of the same file
        index = bisect_right(self._starts, position) - 1
        pieces: list[bytes] = []
        for at, plain in self._payloads(index, position + length):
            start, used = self._starts[at], self._places[at][2]
            if position >= start + used:
                break
            if plain is None:
                log.error("frame.corrupt", file=self.path, position=start)
                break
            piece = plain[position - start : min(used, position - start + length)]
            pieces.append(piece)
            position += len(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _payloads(self, index: int, end: int) -> Iterator[tuple[int, bytes | None]]:
        """The frames from `index` that begin before `end`: all but the first, which may be known, by reads of many."""
        if not 0 <= index < len(self._starts):
            return
        if self._last[0] == index:
            yield index, self._last[1]
            index += 1
        last = bisect_left(self._starts, end, index)
        while index < last:
            first = self._places[index][0]
            until = index + 1
            while until < last and self._frame_end(until) - first <= READ_BYTES:
                until += 1
            data = memoryview(self._inner.pread(self._frame_end(until - 1) - first, first))
            for number in range(index, until):
                position, length, _ = self._places[number]
                frame = data[position - first : position - first + _FRAME.size + length + _TAG]
                whole = len(frame) == _FRAME.size + length + _TAG
                plain = self._unseal(frame, self._starts[number]) if whole else None
                if plain is not None:
                    self._last = (number, plain)
                yield number, plain
            index = until

    def _frame_end(self, index: int) -> int:
        position, length, _ = self._places[index]
        return position + _FRAME.size + length + _TAG

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        if position < self._end <= position + len(view):
            self.truncate(position)
        if position != self._end:
            raise OSError(f"{self.path}: an encrypted file grows only at its end ({self._end}), not at {position}")
        first = self._physical_end
        if not self._clean:
            # A torn write may have left bytes behind the last frame; they must not look like one later.
            if self._inner.size() > first:
                self._inner.truncate(first)
            self._clean = True
        header = self._new_header() if self._cipher is None else b""
        try:
            self._write(view, header, first)
        except OSError:
            # Bytes of this write may be behind the last frame, or a part of the header: the next write begins again.
            self._clean = False
            if header:
                self._cipher, self._tag = None, b""
            raise

    def _write(self, view: memoryview, header: bytes, first: int) -> None:
        if len(view) <= FRAME_BYTES:
            sealed = header + self._seal(view, self._end, _DATA)
            self._inner.pwrite(sealed, first)
            self._starts.append(self._end)
            self._places.append((first + len(header), len(view), len(view)))
            self._end += len(view)
            self._physical_end = first + len(sealed)
        elif view:
            self._write_frames(view, header, first)

    def _write_frames(self, view: memoryview, header: bytes, first: int) -> None:
        count = -(-len(view) // FRAME_BYTES)
        size = len(header) + len(view) + count * (_FRAME.size + _TAG)
        buffer = _take(size)
        out = memoryview(buffer)
        out[: len(header)] = header
        try:
            starts, places = self._seal_frames(view, out, len(header), count)
            self._inner.pwrite(out[:size], first)
        finally:
            out.release()
            _give(buffer)
        self._starts += starts
        self._places += [(first + at, length, length) for at, length in places]
        self._end += len(view)
        self._physical_end = first + size

    def _seal_frames(
        self, view: memoryview, out: memoryview, at: int, count: int
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Seal straight into `out`, with no copy in between; starts of the plain bytes, places of the frames."""
        encrypt, nonces, start = self._cipher.encrypt_into, os.urandom(12 * count), self._end
        starts, places = [], []
        for number in range(count):
            payload = view[number * FRAME_BYTES : (number + 1) * FRAME_BYTES]
            length, nonce = len(payload), nonces[12 * number : 12 * number + 12]
            _FRAME.pack_into(out, at, length, _DATA, nonce)
            body = at + _FRAME.size
            encrypt(nonce, payload, _PLACE.pack(start, length, _DATA) + self._tag, out[body : body + length + _TAG])
            starts.append(start)
            places.append((at, length))
            start += length
            at = body + length + _TAG
        return starts, places

    def _new_header(self) -> bytes:
        key = self._keys.for_topic(self._place.topic)
        salt = os.urandom(32)
        file_key = derived_key(key, salt)
        header = new_header(self._place, self._topic_id() or NO_TOPIC_ID, key.id, salt, file_key)
        self._cipher, self._tag = _cipher(file_key), header[-16:]
        return header

    def size(self) -> int:
        return self._end

    def truncate(self, size: int) -> None:
        if size > self._end:
            raise OSError(f"{self.path}: an encrypted file cannot be made longer than its records")
        if size == 0:
            self._inner.truncate(0)
            self._cipher, self._tag = None, b""
            self._reset()
            return
        index = bisect_right(self._starts, size - 1) - 1
        position, length, used = self._places[index]
        whole = self._starts[index] + used == size
        self._forget_from(size)
        self._physical_end = position + _FRAME.size + length + _TAG
        self._inner.truncate(self._physical_end)
        if not whole or used != length:
            # The frame keeps more than counts: say so behind it. It may not be written again (see above).
            before = self._starts[index] + length
            cut = self._seal(_SIZE.pack(size), before, _CUT)
            self._inner.pwrite(cut, self._physical_end)
            self._physical_end += len(cut)

    def sync(self) -> None:
        self._inner.sync()

    def fileno(self) -> int:
        raise io.UnsupportedOperation("an encrypted file is read, not sent as it is")

    def close(self) -> None:
        self._inner.close()


def _cipher(file_key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(file_key)


class BufferFile:
    """A file in memory, for what is written as a whole."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.data = bytearray()

    def pread(self, length: int, position: int) -> bytes:
        return bytes(self.data[position : position + length])

    def pwrite(self, data: Buffer, position: int) -> None:
        self.data[position:] = memoryview(data)

    def size(self) -> int:
        return len(self.data)

    def truncate(self, size: int) -> None:
        del self.data[size:]

    def sync(self) -> None:
        """Nothing to do."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a buffer has no descriptor")

    def close(self) -> None:
        """Nothing to do."""
