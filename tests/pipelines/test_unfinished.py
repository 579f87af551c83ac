"""Checkpoints on other file systems, read by the writer of a program that has no pipeline around it."""

from __future__ import annotations

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyspark.sql.types import StringType, StructField, StructType

from ottla.pipelines import unfinished
from ottla.pipelines.unfinished import stored_unfinished_batch
from ottla.pipelines.writer import write_options
from tests.support.kafka_jars import Unavailable
from tests.support.s3 import KEYS, s3_server


def plan(query, batch, planned_ms):
    (query / "offsets").mkdir(parents=True, exist_ok=True)
    (query / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":{planned_ms}}}\n{{}}')


class Place:
    def __init__(self, folder):
        self.store, self.looks = SubTreeFileSystem(str(folder), LocalFileSystem()), 0

    def file_system(self):
        self.looks += 1
        return self.store, "c/query"


@pytest.fixture(autouse=True)
def nothing_looked_at(monkeypatch):
    monkeypatch.setattr(unfinished, "_looked", {})


def test_a_remote_checkpoint_is_looked_at_once_an_hour(tmp_path, monkeypatch):
    place, now = Place(tmp_path), [5.0]
    monkeypatch.setattr(unfinished, "locate", lambda _: place)

    def look():
        return stored_unfinished_batch("s3a://bucket/c/query", clock=lambda: now[0])

    assert look() == ""
    plan(tmp_path / "c" / "query", 4, 2000)
    now[0] = 3604.0
    assert (look(), place.looks) == ("", 1)
    now[0] = 3605.0
    assert (look(), place.looks) == ("4:2000", 2)
    (tmp_path / "c" / "query" / "commits").mkdir()
    (tmp_path / "c" / "query" / "commits" / "4").touch()
    assert look() == "4:2000"
    now[0] = 7205.0
    assert look() == ""


def test_a_place_that_cannot_be_read_is_a_line_in_the_log(capsys):
    assert stored_unfinished_batch("viewfs://names/c/query") == ""
    assert stored_unfinished_batch("viewfs://names/c/query") == ""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, "once, not with each batch"
    assert "warning checkpoint.not_read location=viewfs://names/c/query" in lines[0]
    assert "unknown scheme viewfs" in lines[0]


@pytest.mark.interop
def test_the_writer_of_ones_own_program_refuses_an_expired_batch_of_a_checkpoint_on_s3(tmp_path, monkeypatch, topics):
    try:
        with s3_server(tmp_path) as store:
            for name, value in {**KEYS, "AWS_ENDPOINT_URL_S3": store.endpoint}.items():
                monkeypatch.setenv(name, value)
            plan(store.root / store.bucket("places") / "c" / "query", 4, 2000)
            options = {
                "kafka.bootstrap.servers": topics.servers,
                "topic": "out",
                "checkpointLocation": "s3a://places/c/query",
            }
            schema = StructType([StructField("value", StringType())])
            assert write_options(options, schema).expired_version == 4
            assert write_options({**options, "onMarkersLost": "write"}, schema).expired_version is None
            assert write_options({**options, "ottla.unfinished": ""}, schema).expired_version is None, "of a pipeline"
    except Unavailable as reason:
        pytest.skip(str(reason))
