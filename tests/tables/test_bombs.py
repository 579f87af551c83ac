"""What a fetch unpacks to is held one chunk at a time, however much its small batches promise."""

from __future__ import annotations

import pytest

from ottla.protocol.records import iterate_batches
from ottla.tables import decode
from ottla.tables.fetch import CHUNK_BYTES, _chunks
from tests.interop.malformed_batches import CODECS, bomb


def test_a_chunk_is_unpacked_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[int] = []
    original = decode.batch_payload

    def counted(*arguments: object) -> object:
        payload = original(*arguments)  # type: ignore[arg-type]  # as it was called
        unpacked.append(len(payload))
        return payload

    monkeypatch.setattr(decode, "batch_payload", counted)
    mebibytes = CHUNK_BYTES // (1 << 20) + 1
    answer = memoryview(bomb(mebibytes, CODECS["zstd"]) * 50)
    chunks = _chunks(answer, list(iterate_batches(answer)))
    assert len(answer) < 50 * 4096
    next(chunks)
    assert len(unpacked) == 1, "50 batches of a few kB would be 50 chunks at once"
    assert sum(1 for _ in chunks) == 49
