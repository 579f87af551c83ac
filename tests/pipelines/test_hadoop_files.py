"""Checkpoint files through the JVM: a write that fails half-way leaves the file as it was, and nothing beside the file."""

from __future__ import annotations

import pytest

from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import Checkpoint, LocalFiles
from ottla.pipelines.hadoop_files import HadoopFiles

pytestmark = pytest.mark.timeout(600)


class FullDisk:
    """A Hadoop file system whose files take three bytes."""

    def __init__(self, system):
        self._system = system

    def __getattr__(self, name):
        return getattr(self._system, name)

    def create(self, path, overwrite):
        stream = self._system.create(path, overwrite)

        class Stream:
            def write(self, data):
                stream.write(data[:3])
                stream.close()
                raise OSError("no space left")

        return Stream()


def test_a_write_that_fails_leaves_the_file_as_it_was(spark, tmp_path):
    root = f"file:{tmp_path}/p"
    files = HadoopFiles(spark, root)
    for text in ("first", "second"):
        files.write(f"{root}/note.json", text)
        assert files.read(f"{root}/note.json") == text
    files._system = FullDisk(files._system)
    with pytest.raises(UserError, match="no space left"):
        files.write(f"{root}/note.json", "third")
    assert LocalFiles().read(f"{tmp_path}/p/note.json") == "second"
    assert [path.name for path in (tmp_path / "p").iterdir() if path.suffix != ".crc"] == ["note.json"]


def test_a_file_of_a_driver_that_died_is_no_query(spark, tmp_path):
    root = f"file:{tmp_path}/p"
    files = HadoopFiles(spark, root)
    files.create(f"{root}/.ottla.json.0123.new", "{")
    files.create(f"{root}/copy/metadata", "{}")
    assert Checkpoint(files, root).queries() == ["copy"]


@pytest.mark.parametrize(("scheme", "in_place"), [("s3a", True), ("gs", True), ("hdfs", False), ("abfs", False)])
def test_only_stores_of_whole_objects_are_written_in_place(monkeypatch, scheme, in_place):
    files = HadoopFiles.__new__(HadoopFiles)
    calls = []
    monkeypatch.setattr(files, "_is_folder", lambda _: False)
    monkeypatch.setattr(files, "_write", lambda path, *_, **__: calls.append(path))
    monkeypatch.setattr(files, "_replace", lambda _, target: calls.append(target))
    target = f"{scheme}://host/p/note.json"
    files.write(target, "text")
    assert calls[-1] == target
    assert len(calls) == (1 if in_place else 2)
