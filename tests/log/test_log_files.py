"""The small files and the indexes: their exact bytes, what damage does, and the names of folders."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.checkpoints import (
    CorruptCheckpointError,
    read_clean_shutdown,
    read_offsets,
    read_partition_metadata,
    write_clean_shutdown,
    write_offsets,
    write_partition_metadata,
)
from ottla.log.epoch_cache import EpochCache, read_epoch_cache
from ottla.log.file_names import base_offset_of, parse_partition_dir, segment_name, unique_dir
from ottla.log.indexes import OffsetIndex, TimeIndex
from ottla.log.transaction_index import AbortedTxn, append_aborted, collect_aborted, read_aborted, truncate_aborted
from ottla.model.ids import TopicPartition, uuid_from_str
from ottla.runtime.disk import DiskStorage

STORAGE = DiskStorage()
DIRECTORY_ID = uuid_from_str("0tmScKx6XQ6FBiOQPLHttQ")


class TestCheckpoints:
    def test_offsets(self, tmp_path: Path) -> None:
        path = f"{tmp_path}/recovery-point-offset-checkpoint"
        offsets = {TopicPartition("t1", 0): 34905, TopicPartition("a.b-c_d", 12): 0}
        write_offsets(STORAGE, path, offsets)
        assert Path(path).read_bytes() == b"0\n2\nt1 0 34905\na.b-c_d 12 0\n"
        assert read_offsets(STORAGE, path) == offsets
        assert read_offsets(STORAGE, f"{tmp_path}/missing") == {}

    @pytest.mark.parametrize(
        "content", [b"1\n0\n", b"0\n", b"0\nx\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na b c\n"]
    )
    def test_damage(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "checkpoint"
        path.write_bytes(content)
        with pytest.raises(CorruptCheckpointError):
            read_offsets(STORAGE, str(path))

    def test_an_empty_file_is_an_empty_checkpoint(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoint").write_bytes(b"")
        assert read_offsets(STORAGE, f"{tmp_path}/checkpoint") == {}

    def test_partition_metadata_as_kafka_writes_it(self, tmp_path: Path) -> None:
        write_partition_metadata(STORAGE, str(tmp_path), DIRECTORY_ID)
        assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: 0tmScKx6XQ6FBiOQPLHttQ"
        assert read_partition_metadata(STORAGE, str(tmp_path)) == DIRECTORY_ID
        (tmp_path / "partition.metadata").write_text("version: 0\n")
        with pytest.raises(CorruptCheckpointError):
            read_partition_metadata(STORAGE, str(tmp_path))

    def test_clean_shutdown(self, tmp_path: Path) -> None:
        assert read_clean_shutdown(STORAGE, str(tmp_path)) is None
        write_clean_shutdown(STORAGE, str(tmp_path), 13)
        assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":13}'
        assert read_clean_shutdown(STORAGE, str(tmp_path)) == 13
        for content in (b"", b"{}", b"[1]"):
            (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
            assert read_clean_shutdown(STORAGE, str(tmp_path)) == -1


class TestEpochCache:
    def test_file(self, tmp_path: Path) -> None:
        cache = EpochCache(STORAGE, str(tmp_path))
        assert cache.assign(0, 0)
        assert not cache.assign(0, 5)
        assert cache.assign(3, 10)
        cache.write()
        assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 10\n"
        assert read_epoch_cache(STORAGE, str(tmp_path)).entries == [(0, 0), (3, 10)]

    def test_conflicting_entries_go(self) -> None:
        cache = EpochCache(STORAGE, "", [(1, 0), (2, 10), (3, 20)])
        assert cache.assign(4, 15)
        assert cache.entries == [(1, 0), (2, 10), (4, 15)]
        assert cache.assign(2, 12)
        assert cache.entries == [(1, 0), (2, 12)]
        assert cache.latest_epoch == 2

    def test_truncation(self) -> None:
        cache = EpochCache(STORAGE, "", [(1, 0), (2, 10), (3, 20)])
        assert not cache.truncate_from_end(21)
        assert cache.truncate_from_end(20)
        assert cache.entries == [(1, 0), (2, 10)]
        assert cache.truncate_from_start(15)
        assert cache.entries == [(2, 15)]
        assert not cache.truncate_from_start(15)
        assert cache.epoch_for_offset(14) == -1
        assert cache.epoch_for_offset(99) == 2


class TestIndexes:
    @given(
        steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=1200),
        flush_every=st.integers(1, 700),
        data=st.data(),
    )
    def test_lookup_agrees_with_a_list(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        steps: list[tuple[int, int]],
        flush_every: int,
        data: st.DataObject,
    ) -> None:
        path = str(tmp_path_factory.mktemp("index") / "00000000000000001000.index")
        index = OffsetIndex(STORAGE, path, 1000)
        entries: list[tuple[int, int]] = []
        offset, position = 1000, 0
        for number, (offsets, size) in enumerate(steps):
            offset, position = offset + offsets, position + size
            index.append(offset, position)
            entries.append((offset, position))
            if number % flush_every == 0:
                index.flush()
        for wanted in data.draw(st.lists(st.integers(990, offset + 10), min_size=1, max_size=10)):
            at = bisect_right([entry[0] for entry in entries], wanted)
            assert index.lookup(wanted) == (entries[at - 1][1] if at else 0)
        keep = data.draw(st.sampled_from([1000, offset + 1, *[entry[0] for entry in entries]]))
        index.truncate_to(keep)
        left = [entry for entry in entries if entry[0] < keep]
        assert len(index) == len(left) == len(OffsetIndex(STORAGE, path, 1000))
        assert index.last_offset == (left[-1][0] if left else 1000)

    def test_what_was_read_before_a_cut_does_not_answer_for_what_came_after_it(self, tmp_path: Path) -> None:
        index = OffsetIndex(STORAGE, f"{tmp_path}/o", 0)
        for number in range(1, 11):
            index.append(10 * number, 100 * number)
        index.flush()
        assert index.lookup(75) == 700
        index.truncate_to(50)
        for number in range(5, 11):
            index.append(10 * number + 1, 1000 * number)
        index.flush()
        assert [index.lookup(wanted) for wanted in (45, 50, 51, 75, 99, 200)] == [400, 400, 5000, 7000, 9000, 10_000]
        index.reset()
        assert index.lookup(75) == 0

    def test_lookup_in_a_file_that_is_read_in_parts(self, tmp_path: Path) -> None:
        index = OffsetIndex(STORAGE, f"{tmp_path}/o", 0)
        times = TimeIndex(STORAGE, f"{tmp_path}/t", 0)
        for number in range(1, 20_001):
            index.append(10 * number, 100 * number)
            times.maybe_append(1_000 * number, 10 * number)
        for wanted in [0, 9, 10, 11, *range(20, 200_100, 97), 199_999, 200_000, 200_001]:
            floor = min(wanted // 10, 20_000)
            assert index.lookup(wanted) == 100 * floor
            assert index.floor_position(10 * wanted) == 100 * floor
            assert times.lookup(100 * wanted) == 10 * floor

    def test_bytes(self, tmp_path: Path) -> None:
        index = OffsetIndex(STORAGE, f"{tmp_path}/o", 100)
        index.append(107, 4200)
        index.flush()
        assert (tmp_path / "o").read_bytes() == bytes.fromhex("0000000700001068")
        times = TimeIndex(STORAGE, f"{tmp_path}/t", 100)
        times.maybe_append(1_700_000_000_000, 107)
        times.maybe_append(1_600_000_000_000, 108)
        times.flush()
        assert (tmp_path / "t").read_bytes() == (1_700_000_000_000).to_bytes(8, "big") + (7).to_bytes(4, "big")

    @pytest.mark.parametrize("count", [0, 1, 2, 7])
    def test_preallocated_zeros_do_not_count(self, tmp_path: Path, count: int) -> None:
        index = OffsetIndex(STORAGE, f"{tmp_path}/o", 0)
        for number in range(count):
            index.append(10 * (number + 1), 4096 * (number + 1))
        index.flush()
        with (tmp_path / "o").open("ab") as file:
            file.truncate(10_485_760)
        again = OffsetIndex(STORAGE, f"{tmp_path}/o", 0)
        assert len(again) == count
        again.append(1000, 50_000)
        again.flush()
        assert (tmp_path / "o").stat().st_size == 8 * (count + 1)
        assert again.lookup(2000) == 50_000


class TestTransactionIndex:
    def test_round_trip_truncate_collect(self, tmp_path: Path) -> None:
        path = f"{tmp_path}/x.txnindex"
        aborted = [AbortedTxn(1, 0, 10, 11), AbortedTxn(2, 5, 20, 12), AbortedTxn(3, 12, 30, 31)]
        assert read_aborted(STORAGE, path) == []
        append_aborted(STORAGE, path, aborted[:2])
        with Path(path).open("ab") as file:
            file.write(b"torn")
        append_aborted(STORAGE, path, aborted[2:])
        assert read_aborted(STORAGE, path) == aborted
        found: list[AbortedTxn] = []
        assert collect_aborted(aborted, 11, 12, found)
        assert found == [aborted[1]]
        truncate_aborted(STORAGE, path, 20)
        assert read_aborted(STORAGE, path) == aborted[:1]


class TestNames:
    def test_segments(self) -> None:
        assert segment_name(9472) == "00000000000000009472"
        assert base_offset_of("00000000000000009472.log.deleted") == 9472
        for name in ("leader-epoch-checkpoint", "0000.log", "partition.metadata", "0000000000000000947x.log"):
            assert base_offset_of(name) is None

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("t-0", (("t", 0), "")),
            ("a-b.c-12", (("a-b.c", 12), "")),
            ("a-b.c-12.0123456789abcdef0123456789abcdef-delete", (("a-b.c", 12), "-delete")),
            ("t-1.abc-future", (("t", 1), "-future")),
            ("t-1.abc-stray", (("t", 1), "-stray")),
            ("t-delete", None),
            ("plain", None),
            ("t-x", None),
        ],
    )
    def test_folders(self, name: str, expected: object) -> None:
        assert parse_partition_dir(name) == expected

    @given(st.integers(0, 99999), st.sampled_from(["-delete", "-stray"]), st.integers(1, 249))
    def test_unique_names_fit_and_parse(self, partition: int, suffix: str, length: int) -> None:
        name = unique_dir(TopicPartition("t" * length, partition), bytes(16), suffix)
        assert len(name) <= 255
        parsed = parse_partition_dir(name)
        assert parsed is not None
        assert (parsed[0].partition, parsed[1]) == (partition, suffix)
