"""A Parquet file is on disk before the worker commits the offsets of its records."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.connect.sinks.base import Work
from ottla.connect.sinks.parquet import ParquetSink
from ottla.system import files


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the path of a descriptor is in /proc")
def test_the_file_is_synced_before_it_has_its_name_and_its_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    rename = os.replace

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append(f"sync {os.path.relpath(path, tmp_path)}")

    def replaced(source: str, target: str) -> None:
        steps.append("rename")
        rename(source, target)

    monkeypatch.setattr(files, "sync_all", synced)
    monkeypatch.setattr(os, "replace", replaced)
    sink = ParquetSink(str(tmp_path / "table"), partition_by=["day"])
    assert sink.put(pa.table({"n": [1], "day": ["mon"]}), Work(application="app", version=1))
    file, *rest = steps
    assert file.startswith("sync table/day=mon/.app-000000000001.parquet")
    assert rest == ["rename", "sync table/day=mon", "sync table", "sync ."]
