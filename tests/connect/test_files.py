"""Files that grow, rotate, are emptied, replaced or only half written: every whole record once."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    with pytest.raises(UserError, match=r"c\.parquet is no Parquet file"):
        reader.look()
