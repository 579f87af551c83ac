"""The four codecs: both directions, Java's own output, bounds, damage."""

from __future__ import annotations

import base64
import gzip
import subprocess
import sys
import tracemalloc
import zlib
from types import SimpleNamespace

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol import compression
from ottla.protocol.crc32c import COPY_BYTES, crc32c, crc32c_of_bytes
from ottla.protocol.records import SimpleRecord, crc_matches, iterate_records, parse_header

CODECS = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]

# Segments of Apache Kafka 4.3.1: the twelve records of `golden_records`, recompressed by the broker to the topic's codec.
GOLDEN = {
    "gzip": (
        "AAAAAAAAAAAAAADvAAAAAAKPjEoGAAEAAAALAAABi8/laAAAAAGLz+VoC///////////////////AAAADB+LCAAAAAAAAP8TYWBg"
        "YGRkYskwYLRiYGLiyk6t1DVUKUvMKU1VQCYZ4hhYWMCyRh6YsljUT2BkYGMDazDIIUYDJgl0lDFbRUXFPEYGDg7GCYzkmYLFaWIM"
        "XFwQrzAy/GBk4OGBOPMG1Wwg0ndmjFOYGPj4IGH+h662YwmVdUwMAgKMC5gG1hlYHPaNiUFICBJFRwad67BGrKVQBQyIMYiIQCKY"
        "kWEJM4OYGCTh9TAPBqdSIXIAdg05wkAEAAA="
    ),
    "snappy": (
        "AAAAAAAAAAAAAAEwAAAAAAIxH4tzAAIAAAALAAABi8/laAAAAAGLz+VoC///////////////////AAAADIJTTkFQUFkAAAAAAQAA"
        "AAEAAADrwAhsFAAAAAEBAgRoMAE6AAICCmtleS0xJHZhbHVlIC4GABAAXgAEBAUeBDJILhgAXgwAFACQAQAGBgUxBDBsXiUAdhgA"
        "PAIEaDMGeHh4ngEACAgBkAF2LgCmHgAQABYACgoFmhwyAQD4AQAMDAUNBDDY/mIAFWKOjAAkAgRoNgGUAgAODgV+BDH8/n4Asn4A"
        "RqIAIACuAgAQEAGgAkYbAP4SAPYSABQA9gIAEhIlJQQwxP6eAP6eAEKeAEYcARQCBGg5EngRAQwWABQUBbwcMQEApAMAFhYFDQgy"
        "jANGOQD+EgD+EgDOEgAAAA=="
    ),
    "lz4": (
        "AAAAAAAAAAAAAAEdAAAAAAKlbGXmAAMAAAALAAABi8/laAAAAAGLz+VoC///////////////////AAAADAQiTRhgQILdAAAA+A0U"
        "AAAAAQECBGgwAToAAgIKa2V5LTEkdmFsdWUgBgBRAF4ABAQeACgySBgADwwABWEAkAEABgYxAC8wbCUABQ8YAAv/AQIEaDMGeHh4"
        "ngEACAgBkAEuAAsPHgAXUQAWAAoKmgCBMgEA+AEADAwNAC8w2GIANg+MABGhAgRoNgGUAgAODn4ALzH8fgBaDqIAngCuAgAQEAGg"
        "AhsADxIAa2EA9gIAEhIlAS8wxJ4Afg4cAWQCBGg5EngBAEEWABQUvACBMQEApAMAFhYNAD4yjAM5AA8SAJ1QbHVlIAAAAAAA"
    ),
    "zstd": (
        "AAAAAAAAAAAAAAD3AAAAAAIfBeWSAAQAAAALAAABi8/laAAAAAGLz+VoC///////////////////AAAADCi1L/0AWNQFAOIHHSag"
        "KR2wq9a/FY+ze0o+7r2xuMuaKnSXy39fQh7ve5OE7GQvSWRKAW4c0Tk3Ex+2ZjdZQa5q5TFmvVgljyIrxRkIQVbICXLV8p7Hx/hx"
        "LTv/ccfxI3NONZCr01PKf/gQd40wQFpMCUYAChqSYqna8CdXf9stGgCfoxToBDJghP/eJTiiAhJsSANlCbVrpsCnd8ADChIOmICX"
        "IIGVAWEY4Z136cAZFOUt8EBAMFVCAQ8Ax0G1mnDFCQEAAA=="
    ),
}


def golden_records() -> list[SimpleRecord]:
    return [
        SimpleRecord(
            1700000000000 + i,
            b"key-%d" % (i % 3) if i % 4 else None,
            b"value " * (i * 3) if i % 5 else None,
            ((f"h{i}", b"x" * i if i % 2 else None),) if i % 3 == 0 else (),
        )
        for i in range(12)
    ]


@pytest.mark.parametrize("name", GOLDEN)
def test_what_java_wrote(name: str) -> None:
    batch = base64.b64decode(GOLDEN[name])
    header = parse_header(batch, 0)
    assert header.compression == compression.NAMES[name]
    assert crc_matches(batch, 0, header.size)
    assert [SimpleRecord(r.timestamp, r.key, r.value, r.headers) for r in iterate_records(batch)] == golden_records()


@given(st.sampled_from(CODECS), st.binary(max_size=500), st.integers(1, 400))
def test_round_trip(codec: int, data: bytes, times: int) -> None:
    data *= times
    assert compression.decompress(codec, compression.compress(codec, data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(compression.GZIP, (-1, 1, 9)), (compression.LZ4, (1, 9, 17)), (compression.ZSTD, (-7, 1, 3, 22))],
)
def test_levels(codec: int, levels: tuple[int, ...]) -> None:
    data = b"".join(b"%d," % (i * i) for i in range(20_000))
    sizes = []
    for level in levels:
        packed = compression.compress(codec, data, level)
        assert compression.decompress(codec, packed) == data
        sizes.append(len(packed))
    assert sizes[-1] < max(sizes)


def test_raw_snappy_and_several_gzip_members_are_read() -> None:
    data = b"some words, some words, some words" * 50
    assert compression.decompress(compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert compression.decompress(compression.GZIP, gzip.compress(data) + gzip.compress(data)) == data * 2


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses frames without this flag."""
    assert compression.compress(compression.LZ4, b"a" * 100_000)[4] & 0x20


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit(codec: int) -> None:
    packed = compression.compress(codec, bytes(100_000))
    assert len(compression.decompress(codec, packed, 100_000)) == 100_000
    with pytest.raises(KafkaError) as caught:
        compression.decompress(codec, packed, 99_999)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_does_not_go_off(codec: int) -> None:
    """200 MiB of zeros, unpacked with a limit of 16 MiB in a process that may have 150 MiB more."""
    program = f"""
import resource
from ottla.model.errors import KafkaError
from ottla.protocol import compression
from ottla.protocol.crc32c import COPY_BYTES, crc32c, crc32c_of_bytes
step = bytes(1 << 20)
if {codec} == 1:
    import zlib
    packer = zlib.compressobj(9, 8, 31); bomb = b"".join(packer.compress(step) for _ in range(200)) + packer.flush()
elif {codec} == 2:
    block = compression.compress(2, bytes(32768))[16:]; bomb = compression.compress(2, b"")[:16] + block * 6400
elif {codec} == 3:
    import cramjam
    packer = cramjam.lz4.Compressor(); [packer.compress(step) for _ in range(200)]; bomb = bytes(packer.finish())
else:
    packer = compression._zstd().ZstdCompressor(); bomb = b"".join(packer.compress(step) for _ in range(200))
    bomb += packer.flush()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    compression.decompress({codec}, bomb, 16 << 20)
except KafkaError as error:
    print(int(error.code), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    code, grown_mib = map(int, answer.stdout.split())
    assert code == 87
    assert grown_mib < 64


@pytest.mark.parametrize("codec", CODECS)
def test_damage(codec: int) -> None:
    for data in (b"garbage, garbage", b"\x00" * 40):
        with pytest.raises(KafkaError):
            compression.decompress(codec, data)
    with pytest.raises(KafkaError):
        compression.decompress(6, b"")
    with pytest.raises(KafkaError):
        compression.compress(6, b"")


SKIPPABLE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"


def test_several_zstd_frames_are_read() -> None:
    data = b"some words, some words, some words" * 5000
    frame = compression.compress(compression.ZSTD, data)
    assert compression.decompress(compression.ZSTD, SKIPPABLE + frame + SKIPPABLE + frame) == data * 2
    assert compression.decompress(compression.ZSTD, b"") == b""


@pytest.mark.parametrize("end", [b"junk, junk, junk", SKIPPABLE[:-2], b"\x28\xb5"])
def test_zstd_data_that_end_inside_of_a_frame_are_refused(end: bytes) -> None:
    frame = compression.compress(compression.ZSTD, b"some words" * 500)
    for data in (frame + end, frame[:-3], frame + frame[:9]):
        with pytest.raises(KafkaError) as caught:
            compression.decompress(compression.ZSTD, data)
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_zstd_frames_are_counted() -> None:
    """Each frame costs 10 us, and 100 MB hold ten million empty frames."""
    empty = compression.compress(compression.ZSTD, b"")
    assert compression.decompress(compression.ZSTD, empty * 10_000) == b""
    with pytest.raises(KafkaError, match="more than 10000 zstd frames"):
        compression.decompress(compression.ZSTD, empty * 10_001)


def test_a_checksum_is_the_same_over_pieces_and_from_every_buffer() -> None:
    data = bytes(range(256)) * 1025
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    for size in (0, 1, COPY_BYTES, COPY_BYTES + 1, len(data)):
        assert crc32c(memoryview(bytearray(data))[:size]) == crc32c(data[:size]) == crc32c_of_bytes(data[:size])


def test_members_of_a_gzip_stream_are_read_without_copying_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib copies what it leaves: 1 MB of empty members took 5 s."""
    taken: list[int] = []

    class Counted:
        def __init__(self, *arguments: int) -> None:
            self._inner = zlib.decompressobj(*arguments)

        def decompress(self, data: memoryview, size: int) -> bytes:
            taken.append(len(data))
            return self._inner.decompress(data, size)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    fake = SimpleNamespace(decompressobj=Counted, error=zlib.error)
    monkeypatch.setattr(compression, "zlib", fake)
    members = [gzip.compress(b""), gzip.compress(b"abc" * 100_000), gzip.compress(b"x")]
    data = members[0] * 5000 + members[1] + members[0] + members[2]
    assert compression.decompress(compression.GZIP, data) == b"abc" * 100_000 + b"x"
    assert sum(taken) < 5010 * 5000
    for cut in (3, len(members[2]) - 1):
        with pytest.raises(KafkaError, match="cannot be read"):
            compression.decompress(compression.GZIP, members[1] + members[2][:cut])
    assert compression.decompress(compression.GZIP, members[2] + b"rest") == b"x"


def test_an_lz4_batch_takes_memory_for_its_contents_only() -> None:
    """A buffer of 256 times its length, at most 100 MiB, was filled with zeros first: tracemalloc does not see a mapping."""
    data = compression.compress(compression.LZ4, b"x" * 1000) + b"\0" * 400_000
    tracemalloc.start()
    try:
        assert compression.decompress(compression.LZ4, data) == b"x" * 1000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
