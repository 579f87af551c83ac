"""Files that grow, rotate, are emptied, replaced or only half written: every whole record once."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.connect.sources import files, records
from ottla.connect.sources.files import FileSource
from ottla.model.user_error import UserError


class Reader:
    """A source that is made anew for each look, as after a restart."""

    def __init__(self, pattern, **more):
        self._config = {"file": str(pattern), "topic": "t", **more}
        self.place = None

    def look(self):
        source, found = FileSource(self._config), []
        while changes := source.poll(self.place):
            self.place = changes[-1].place or self.place
            found += [change.value for change in changes]
        return found


def append(path, text):
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_a_rotated_log_keeps_its_last_lines(tmp_path, pattern):
    log, reader = tmp_path / "app.log", Reader(tmp_path / pattern)
    log.write_text("1\n2\n")
    assert reader.look() == ["1", "2"]
    append(log, "3\n")
    log.rename(tmp_path / "app.log.1")
    log.write_text("4\n")
    assert sorted(reader.look()) == ["3", "4"]
    append(log, "5\n")
    append(tmp_path / "app.log.1", "late\n")
    assert sorted(reader.look()) == ["5", "late"]
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    log.rename(tmp_path / "app.log.1")
    assert reader.look() == []


def test_an_emptied_file_is_read_from_its_beginning(tmp_path):
    log, reader = tmp_path / "app.log", Reader(tmp_path / "app.log")
    log.write_text("1\n2\n")
    assert reader.look() == ["1", "2"]
    os.truncate(log, 0)
    append(log, "3\n")
    assert reader.look() == ["3"]
    os.truncate(log, 0)
    append(log, "4\n5\n6\n")  # longer than what was read before
    assert reader.look() == ["4", "5", "6"]


def test_a_new_file_with_an_old_inode_and_old_content_is_new(tmp_path):
    reader = Reader(tmp_path)
    for number in range(3):
        path = tmp_path / f"job{number}.txt"
        path.write_text("same\n")
        assert reader.look() == ["same"], number
        path.unlink()


def test_small_polls_go_on_where_they_were(tmp_path):
    reader = Reader(tmp_path, **{"batch.size": "2"})
    for number in range(3):
        (tmp_path / f"f{number}.txt").write_text("".join(f"{number}{line}\n" for line in range(5)))
    assert reader.look() == [f"{number}{line}" for number in range(3) for line in range(5)]
    assert reader.look() == []


def test_a_place_without_checksums_is_still_known(tmp_path):
    log, reader = tmp_path / "app.log", Reader(tmp_path / "app.log")
    log.write_text("1\n2\n")
    reader.place = {f"{log}#{log.stat().st_ino}": 2}
    assert reader.look() == ["2"]
    assert len(reader.place) == 1


def test_rows_of_csv_may_have_several_lines(tmp_path):
    path, reader = tmp_path / "x.csv", Reader(tmp_path / "x.csv", format="csv", **{"batch.size": "1"})
    path.write_bytes('﻿id,"te\nxt"\n1,"a\r\nb"\n\n2,"q""q"\n3,5" pipe,more\n4\n5,"not clo'.encode())
    assert reader.look() == [
        {"id": "1", "te\nxt": "a\r\nb"},
        {"id": "2", "te\nxt": 'q"q'},
        {"id": "3", "te\nxt": '5" pipe', "_extra": ["more"]},
        {"id": "4", "te\nxt": None},
    ]
    append(path, 'sed\nyet"\n')
    assert reader.look() == [{"id": "5", "te\nxt": "not closed\nyet"}]


def test_the_end_of_a_file_that_is_being_written_waits(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}')
    reader = Reader(path, format="json")
    assert reader.look() == [{"a": 1}, {"a": 2}]  # an object that can be read is whole
    append(path, '\n{"a": ')
    assert reader.look() == []
    append(path, "3}\n17")
    assert reader.look() == [{"a": 3}]
    append(path, "5\n")
    assert reader.look() == [175]
    path = tmp_path / "x.txt"
    path.write_text("one\ntwo")
    assert Reader(path).look() == ["one"]
    assert Reader(path, **{"incomplete.line": "take"}).look() == ["one", "two"]
    with pytest.raises(UserError, match=r"incomplete\.line is wait or take"):
        Reader(path, **{"incomplete.line": "maybe"}).look()


def test_parquet_half_written_and_in_pieces(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"n": list(range(10))}), folder / "a.parquet", row_group_size=4)
    whole = (folder / "a.parquet").read_bytes()
    (folder / "b.parquet").write_bytes(whole[: len(whole) // 2])
    reader = Reader(folder, format="parquet", **{"batch.size": "3"})
    assert [row["n"] for row in reader.look()] == list(range(10))
    (folder / "b.parquet").write_bytes(whole)
    assert [row["n"] for row in reader.look()] == list(range(10))
    assert reader.look() == []
    (folder / "c.parquet").write_text("no parquet at all")
    with pytest.raises(UserError, match=r"c\.parquet is not a Parquet file"):
        reader.look()


def polls(reader: FileSource) -> list[list[Any]]:
    """The values of each poll until nothing comes."""
    place, made = None, []
    while changes := reader.poll(place):
        place = changes[-1].place
        made.append([change.value for change in changes])
    return made


def hostile(path, form: str) -> FileSource:
    return FileSource({"file": str(path), "topic": "t", "format": form})


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_a_line_without_an_end_is_not_read_into_memory(tmp_path, monkeypatch, form) -> None:
    """A terabyte of zeros takes no place on the disk. 3 GB of them took 6.3 GB of memory."""
    monkeypatch.setattr(records, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.write(b"a\nb\n")
        file.truncate(1 << 40)
    with pytest.raises(UserError, match="at byte 4 is longer than 1 MiB"):
        polls(hostile(path, form))


def test_a_quote_that_never_ends_is_one_row(tmp_path, monkeypatch) -> None:
    """The row of 256 MiB took 82 s, and then an error of the csv module."""
    monkeypatch.setattr(records, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "open.csv"
    path.write_bytes(b'a\n1\n"' + b"x\n" * (1 << 20))
    with pytest.raises(UserError, match="the line or row at byte 4 is longer than 1 MiB"):
        polls(hostile(path, "csv"))


def test_columns_have_a_limit(tmp_path) -> None:
    """A header of 100,000 columns and 2,000 rows of one field (700 KB) took 8 GB: each row has every column."""
    path = tmp_path / "wide.csv"
    path.write_text("c," * 10_001 + "\n" + "1\n" * 5_000)
    with pytest.raises(UserError, match="has a row of 10002 columns, more than 10000"):
        polls(hostile(path, "csv"))
    path.write_text("c\n" + "1," * 10_001 + "\n")
    with pytest.raises(UserError, match="more than 10000"):
        polls(hostile(path, "csv"))
    table = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"c{number}": [1] for number in range(10_001)}), table)
    with pytest.raises(UserError, match="more than 10000"):
        polls(hostile(table, "parquet"))


def test_a_poll_has_a_limit_of_bytes(tmp_path, monkeypatch) -> None:
    """A dictionary of one value: 100,000 rows of 1 MB each are a file of 1 KB, and took 4 GB at once."""
    monkeypatch.setattr(files, "_MOST_BYTES", 1 << 20)
    path = tmp_path / "bomb.parquet"
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 300), pa.array(["x" * 100_000]))
    pq.write_table(pa.table({"a": values, "n": range(300)}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 16_384
    taken = polls(hostile(path, "parquet"))
    assert max(len(rows) for rows in taken) == 11
    assert [row["n"] for rows in taken for row in rows] == list(range(300))
    wide = tmp_path / "rows.csv"
    wide.write_text(",".join(f"c{number}" for number in range(1_000)) + "\n" + "1\n" * 100)
    taken = polls(hostile(wide, "csv"))
    assert max(len(rows) for rows in taken) < 20
    assert sum(len(rows) for rows in taken) == 100


def test_a_column_of_a_row_group_has_a_limit(tmp_path, monkeypatch) -> None:
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"a": [bytes(1_000) + bytes([n % 256]) for n in range(2_000)]}), path, use_dictionary=False)
    assert sum(len(rows) for rows in polls(hostile(path, "parquet"))) == 2_000
    monkeypatch.setattr(records, "MAX_PARQUET_VALUES", 1 << 20)
    with pytest.raises(UserError, match="column a of a row group has 1 MiB, more than 1"):
        polls(hostile(path, "parquet"))


def test_values_of_parquet_are_the_same_by_dictionary(tmp_path) -> None:
    """Texts are read as dictionaries: nested texts, decimals and missing values stay what they are."""
    table = pa.table(
        {
            "text": pa.array(["x", "y", None, "x"], pa.large_string()),
            "bytes": pa.array([b"1", None, b"\xff", b"1"]),
            "decimal": pa.array([Decimal("1.50"), None, Decimal("-1.00"), Decimal("7.25")], pa.decimal128(30, 2)),
            "nested": pa.array([{"k": "v", "l": ["p", None]}, None, {"k": None, "l": []}, {"k": "v", "l": None}]),
            "map": pa.array([[("a", "b")], [], None, [("c", None)]], pa.map_(pa.string(), pa.string())),
        }
    )
    path = tmp_path / "values.parquet"
    for options in ({}, {"store_schema": False}, {"use_dictionary": False}, {"data_page_version": "2.0"}):
        pq.write_table(table, path, row_group_size=3, **options)
        assert [row for rows in polls(hostile(path, "parquet")) for row in rows] == table.to_pylist(), options
