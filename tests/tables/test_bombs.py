"""What a fetch unpacks to is held one chunk at a time, however much its small batches promise."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ottla.model.errors import KafkaError
from ottla.protocol.compression import compress
from ottla.protocol.records import iterate_batches
from ottla.tables import decode
from ottla.tables.fetch import CHUNK_BYTES, _chunks
from tests.interop.malformed_batches import CODECS, bomb, varint, wrapped


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


def headers_bomb(records: int, headers: int) -> memoryview:
    """Records without key and value, whose headers have empty names and values: two bytes each before compression."""
    record = b"\0\0\0\x01\x01" + varint(headers) + b"\0\0" * headers
    payload = (varint(len(record)) + record) * records
    return memoryview(wrapped(compress(CODECS["zstd"], payload), records, CODECS["zstd"]))


def decoded(batch: memoryview) -> pa.RecordBatch:
    chunk = decode.Chunk()
    for at, header in iterate_batches(batch):
        chunk.add(batch, at, header)
    return decode.decode_chunk(chunk, "t", 0, 0, 1 << 60, with_headers=True)


def test_a_record_of_a_million_headers_is_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 KB of zstd held 50 million headers: 4.2 GB and 168 s in the console's SQL page or a Spark executor."""
    batch = headers_bomb(1, 1_000_000)
    assert len(batch) < 4096
    monkeypatch.delattr(decode, "_slice")
    with pytest.raises(KafkaError, match="has 1000000 headers, more than 100000"):
        decoded(batch)


def test_headers_become_arrow_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headers of a chunk were Python objects all at once, at 50 times their size."""
    made: list[int] = []
    original = decode._one_headers

    def counted(*arguments: object) -> object:
        made.append(1)
        return original(*arguments)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(decode, "_one_headers", counted)
    monkeypatch.setattr(decode, "_HEADERS_AT_ONCE", 1_000)
    sizes: list[int] = []
    array = pa.array

    class Arrow:
        def __getattr__(self, name: str) -> object:
            return getattr(pa, name)

        def array(self, values: object, *rest: object) -> pa.Array:
            if rest and rest[0] == decode.HEADERS_TYPE:
                sizes.append(sum(len(row) for row in values if row))  # type: ignore[attr-defined, misc]
            return array(values, *rest)

    monkeypatch.setattr(decode, "pa", Arrow())
    rows = decoded(headers_bomb(100, 300))
    assert len(made) == 100
    assert max(sizes) < 1_300
    assert [len(row) for row in rows.column("headers").to_pylist()] == [300] * 100
