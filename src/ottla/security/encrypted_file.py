"""One encrypted file behind the File seam: a header, then sealed frames. Callers use it like a plain file.

    file  = header (`ottla.security.file_headers`), frame ...
    frame = payload length (4), kind (1), nonce (12); AES-256-GCM of the payload with its tag

Every write appends one or more frames of at most 64 KiB. A frame is never overwritten, so a torn write loses only the
torn frame. A cut inside a frame appends a frame of its own kind, which holds the new size of the file. A damaged frame
loses only its own bytes. The reader searches for the next authentic frame. The position that authenticates that frame
gives the number of plain bytes in between.

The file's key is derived from the topic's key and the salt. A frame is authenticated with its position and with the
header's tag, so neither frames nor files can be moved. Callers use positions of plain bytes; `_starts` maps them to
frames.

Encryption can be switched on over existing data. Files that are plain at that time stay plain; every file that is
created later is encrypted. Any other plain file is refused (`ottla.security.encrypted_since`).
"""

from __future__ import annotations

import io
import os
import re
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
from ottla.security.keystore import TopicKeyStore, derived_key

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
_OVERHEAD = _FRAME.size + _TAG
_FRAME_START = re.compile(rb"(?=(?:\x00\x00..|\x00\x01\x00\x00)[\x01\x02])", re.DOTALL)
"""A length of at most 64 KiB and a kind. Encrypted bytes match by chance once in four million positions."""
_MAX_LOST_FRAMES = 128
_MAX_TRIES = 10_000
"""Each try deciphers one frame. The limit keeps a file that was forged to look full of frames from blocking a start."""

_spare: list[bytearray] = []
"""Buffers for sealed frames, kept because fresh memory costs more than the cipher. Threads use the list too, so only
the atomic operations pop and append are allowed.
"""


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
    """Random; each nonce is used once. Nonces are drawn in bulk: the system call is a third of a small append."""
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
    """One open file. Opening finds the frames. The last frame that was read stays in memory, because callers read
    headers in small steps.
    """

    def __init__(
        self, inner: File, keys: TopicKeyStore, place: FilePlace, topic_id: Callable[[], bytes | None]
    ) -> None:
        self._inner = inner
        self._keys = keys
        self._place = place
        self._topic_id = topic_id
        self.path = inner.path
        self._cipher: Any = None
        self._tag = b""
        """The header's tag, which authenticates every frame. Files of version 1 have no tag."""
        self._clean = False
        self._reset()
        self._scan()

    def _reset(self) -> None:
        self._starts: list[int] = []
        self._places: list[tuple[int, int, int]] = []
        """Of each frame: physical position of its header, payload bytes, payload bytes that are still valid."""
        self._end = 0
        self._physical_end = 0
        self._searched = 0
        """The size of the file at the last search that found no frame behind the known frames."""
        self._last: tuple[int, bytes | None] = (-1, b"")
        """The last frame that was read; None if it is corrupt. A search behind a corrupt frame asks byte by byte."""

    # Frames

    def _open_header(self, start: bytes) -> bool:
        """False when there is no whole header."""
        if len(start) > 8 and start.startswith(MAGIC) and start[8] not in HEADER_BYTES:
            raise OSError(f"{self.path}: encryption of version {start[8]} is not supported")
        header = parse_header(start)
        if header is None:
            return False  # torn, or zeros: a power cut lost the header
        key = self._keys.file_key(header.key_id, header.salt)
        check_owner(self.path, self._place, self._keys.topic_of(header.key_id, header.salt))
        if header.version == VERSION:
            self._tag = checked_tag(self.path, start, self._place, self._topic_id(), key)
        self._cipher = _cipher(key)
        self._physical_end = HEADER_BYTES[header.version]
        return True

    def _scan(self) -> None:
        """Find the frames behind the known frames. Bytes at the end that are not a whole frame are ignored."""
        size = self._inner.size()
        if self._cipher is None and not (size and self._open_header(self._inner.pread(MAX_HEADER_BYTES, 0))):
            return
        position = self._physical_end
        while position + _FRAME.size <= size:
            length, kind, _ = _FRAME.unpack(self._inner.pread(_FRAME.size, position))
            after = position + _OVERHEAD + length
            sound = kind in (_DATA, _CUT) and 0 < length <= FRAME_BYTES and after <= size
            if sound and kind == _DATA:
                self._add_frame(position, length)
            else:
                cut = self._unseal(self._inner.pread(_OVERHEAD + length, position), self._end, _CUT) if sound else None
                if cut is None:
                    next_frame = self._pass_over(position, size) if self._searched != size else None
                    if next_frame is None:
                        self._searched = size
                        break
                    after = next_frame
                else:
                    self._forget_from(_SIZE.unpack(cut)[0])
            position = after
        self._physical_end = position

    def _add_frame(self, position: int, length: int) -> None:
        self._starts.append(self._end)
        self._places.append((position, length, length))
        self._end += length

    def _pass_over(self, position: int, size: int) -> int | None:
        """Where the next authentic frame begins behind damage; None if no frame follows (a torn write at the end).

        The bytes in between count as one frame. That frame can be read if only its header is damaged. The damage may be
        in the length field of the previous frame; then the search starts at that frame.
        """
        if self._starts and self._frame_end(-1) == position:
            before, length, _ = self._places[-1]
            if self._unseal(self._inner.pread(_OVERHEAD + length, before), self._starts[-1], _DATA) is None:
                self._forget_from(self._starts[-1])
                position = before
        tries = 0
        for at in self._frame_starts(position + _OVERHEAD + 1, size):
            length, kind, _ = _FRAME.unpack(self._inner.pread(_FRAME.size, at))
            frame = self._inner.pread(_OVERHEAD + length, at)
            for lost in range(1, min((at - position) // (_OVERHEAD + 1), _MAX_LOST_FRAMES) + 1):
                hidden = at - position - lost * _OVERHEAD
                tries += 1
                if len(frame) == _OVERHEAD + length and self._unseal(frame, self._end + hidden, kind) is not None:
                    log.error("frame.damaged", file=self.path, position=self._end, bytes=hidden)
                    self._add_frame(position, hidden)
                    return at
            if tries > _MAX_TRIES:
                break
        return None

    def _frame_starts(self, position: int, size: int) -> Iterator[int]:
        """Positions from `position` on that look like the start of a frame."""
        while position + _OVERHEAD < size:
            window = self._inner.pread(READ_BYTES, position)
            for match in _FRAME_START.finditer(window):
                if match.start() + _FRAME.size <= len(window):
                    yield position + match.start()
            position += max(len(window) - _FRAME.size + 1, 1)

    def _forget_from(self, size: int) -> None:
        """Drop the plain bytes from `size` on."""
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

    def _unseal(self, frame: Buffer, start: int, kind: int) -> bytes | None:
        """None if the frame is not authentic. The caller gives length and kind: those in the header may be damaged."""
        view = memoryview(frame)
        nonce, place = _FRAME.unpack_from(view)[2], _PLACE.pack(start, len(view) - _OVERHEAD, kind)
        try:
            plain: bytes = self._cipher.decrypt(nonce, view[_FRAME.size :], place + self._tag)
        except _invalid_tag():
            return None
        return plain

    # The seam

    def pread(self, length: int, position: int) -> bytes:
        if position + length > self._end and self._inner.size() > self._physical_end:
            self._scan()  # the same file was opened twice, and written through the other File
        index = bisect_right(self._starts, position) - 1
        pieces: list[bytes] = []
        for at, plain in self._payloads(index, position + length):
            start, used = self._starts[at], self._places[at][2]
            if position >= start + used:
                break
            if plain is None:
                break
            piece = plain[position - start : min(used, position - start + length)]
            pieces.append(piece)
            position += len(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _payloads(self, index: int, end: int) -> Iterator[tuple[int, bytes | None]]:
        """The frames from `index` that begin before `end`. One read fetches many frames, except a first frame in
        memory.
        """
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
                frame = data[position - first : position - first + _OVERHEAD + length]
                whole = len(frame) == _OVERHEAD + length
                plain = self._unseal(frame, self._starts[number], _DATA) if whole else None
                if whole:
                    self._last = (number, plain)
                if plain is None:
                    log.error("frame.damaged", file=self.path, position=self._starts[number])
                yield number, plain
            index = until

    def _frame_end(self, index: int) -> int:
        position, length, _ = self._places[index]
        return position + _OVERHEAD + length

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        if position < self._end <= position + len(view):
            self.truncate(position)
        if position != self._end:
            raise OSError(f"{self.path}: an encrypted file grows only at its end ({self._end}), not at {position}")
        first = self._physical_end
        if not self._clean:
            # A torn write may have left bytes behind the last frame; they must not look like a frame later.
            if self._inner.size() > first:
                self._inner.truncate(first)
            self._clean = True
        header = self._new_header() if self._cipher is None else b""
        try:
            self._write(view, header, first)
        except OSError:
            # This write may have left bytes behind the last frame, or part of a header: the next write cuts them off.
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
        size = len(header) + len(view) + count * _OVERHEAD
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
        self._physical_end = position + _OVERHEAD + length
        self._inner.truncate(self._physical_end)
        if not whole or used != length:
            # The frame holds bytes behind `size` and must not be overwritten: a frame behind it stores the new size.
            before = self._starts[index] + length
            cut = self._seal(_SIZE.pack(size), before, _CUT)
            self._inner.pwrite(cut, self._physical_end)
            self._physical_end += len(cut)

    def sync(self) -> None:
        self._inner.sync()

    def fileno(self) -> int:
        raise io.UnsupportedOperation("an encrypted file is read, not sent with sendfile")

    def close(self) -> None:
        self._inner.close()


def _cipher(file_key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(file_key)


class BufferFile:
    """A file in memory, for contents that are written as a whole."""

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
