"""Files in folders and in a real S3 server: whole batches once, whatever died in between, and tables of earlier versions."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest

from ottla.connect.locations import locate
from ottla.connect.sinks.base import Work
from ottla.connect.sinks.delta import read_delta
from ottla.connect.sinks.parquet import ParquetSink
from ottla.model.user_error import UserError
from ottla.pipelines.outputs import files as file_outputs
from ottla.pipelines.outputs.files import committed_files
from tests.pipelines.attempts import Attempt, batch, output, run, stage, writer
from tests.support.kafka_jars import Unavailable
from tests.support.s3 import KEYS, s3_server

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def attempts(monkeypatch):
    monkeypatch.setattr("pyspark.TaskContext.get", Attempt)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    try:
        with s3_server(tmp_path_factory.mktemp("s3")) as made:
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.interop)])
def path(request, tmp_path, monkeypatch):
    if request.param == "folder":
        return str(tmp_path / "t")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server = request.getfixturevalue("store")
    return server.uri(f"{server.bucket('lake')}/{tmp_path.name}").replace("s3://", "s3a://")


DIGEST = hashlib.sha256(b"app/1").hexdigest()[:12]


def numbers(path):
    """As a plain reader of folders sees them."""
    files, root = locate(path).file_system()
    found = pyarrow.dataset.dataset(root, filesystem=files, partitioning="hive", format="parquet")
    return sorted(found.to_table().column("n").to_pylist())


def test_whole_batches_once(path):
    first = writer("files", 0, path=path, partitionby="word")
    messages = [stage(first, batch(1, 2), batch(3)), stage(first, task=1)]
    assert committed_files(path) == [], "staged rows are invisible"
    first.commit(messages)
    first.commit(messages)
    run("files", 0, [batch(1, 2, 3)], path=path, partitionby="word")
    assert numbers(path) == [1, 2, 3]
    made = writer("files", 1, path=path, partitionby="word")
    loser, winner = stage(made, batch(4, 5)), stage(made, batch(4, 5))
    paused = writer("files", 1, path=path, partitionby="word")
    of_paused = stage(paused, batch(4, 5))
    made.commit([winner])
    paused.commit([of_paused])
    run("files", 2, path=path, partitionby="word")
    run("files", 3, [batch(6)], [batch(7)], path=path, partitionby="word")
    assert numbers(path) == [1, 2, 3, 4, 5, 6, 7]
    assert len(committed_files(path)) == 6
    assert loser.rows == 2
    store, root = locate(path).file_system()
    staged = store.get_file_info(pyarrow.fs.FileSelector(f"{root}/_ottla/staged", recursive=True, allow_not_found=True))
    assert [one.path for one in staged if one.is_file] == []
    assert output("files", path=path).reached("app/1") == 3


def test_a_driver_that_dies_before_or_within_its_moves(path, monkeypatch):
    run("files", 0, [batch(1)], path=path)
    dead = writer("files", 1, path=path)
    stage(dead, batch(2))
    run("files", 1, [batch(2)], path=path)
    assert numbers(path) == [1, 2]
    dying = writer("files", 2, path=path)
    messages = [stage(dying, batch(3), task=0), stage(dying, batch(4), task=1)]
    moved = []

    def die_after_one(store, *paths):
        if moved:
            raise OSError("killed")
        moved.append(store.move(*paths))

    with monkeypatch.context() as patched:
        patched.setattr(file_outputs, "_move_far", die_after_one)
        patched.setattr(file_outputs, "_MOVES_AT_ONCE", 1)
        patched.setattr(file_outputs, "is_local", lambda _: False)
        with pytest.raises(UserError, match="killed"):
            dying.commit(messages)
    assert len(numbers(path)) == 3, "a reader of folders sees a part"
    assert len(committed_files(path)) == 2, "this one sees whole batches"
    run("files", 2, [batch(3)], [batch(4)], path=path)  # the batch is committed, and the replay ends its moves
    assert numbers(path) == [1, 2, 3, 4]
    assert len(committed_files(path)) == 4


def lose(path, *names):
    """As a rule of the store that removes old files, or an operator."""
    store, root = locate(path).file_system()
    for entry in store.get_file_info(pyarrow.fs.FileSelector(root, recursive=True)):
        if entry.is_file and any(name in entry.path for name in names):
            store.delete_file(entry.path)


@pytest.mark.parametrize("of_version", ["this version", "an earlier version"])
def test_a_staged_file_that_is_lost_is_no_moved_file(path, monkeypatch, of_version):
    run("files", 0, [batch(1)], path=path)
    dying = writer("files", 1, path=path)
    messages = [stage(dying, batch(2), task=0), stage(dying, batch(3), task=1)]
    with monkeypatch.context() as patched:
        patched.setattr(file_outputs, "_move", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dying.commit(messages)
    lose(path, "/staged/")
    if of_version == "an earlier version":  # cannot be told from files that were moved and taken away
        lose(path, ".moved")
        run("files", 2, [batch(4)], path=path)
        assert numbers(path) == [1, 4]
        return
    with pytest.raises(
        UserError, match=r"^2 files of batch 1 are neither staged nor in .*00000-0.parquet: restore them, or"
    ):
        writer("files", 1, path=path)
    store, root = locate(path).file_system()
    with store.open_output_stream(f"{root}/_ottla/app_1-{DIGEST}.moved") as stream:
        stream.write(b"1")
    run("files", 2, [batch(4)], path=path)
    assert numbers(path) == [1, 4]
    assert len(committed_files(path)) == 2


def test_a_reader_may_take_moved_files_away(path):
    run("files", 0, [batch(1)], path=path)
    lose(path, ".parquet")
    run("files", 0, [batch(1)], path=path)
    run("files", 1, [batch(2)], path=path)
    assert numbers(path) == [2]


def test_a_batch_that_an_earlier_version_wrote_is_replaced(path):
    sink = ParquetSink(path, partition_by=["word"])
    for version, rows in enumerate([[1], [2, 3]]):
        sink.put(pa.Table.from_batches([batch(*rows)]), Work(application="app.1", version=version))
    run("files", 1, [batch(2, 3)], path=path, partitionby="word", application="app.1")
    run("files", 2, [batch(4)], path=path, partitionby="word", application="app.1")
    assert numbers(path) == [1, 2, 3, 4]


def test_complete_mode_replaces_all_files(path):
    run("files", 0, [batch(1, 2)], [batch(3)], path=path, overwrite=True, partitionby="word")
    run("files", 1, [batch(8)], path=path, overwrite=True, partitionby="word")
    assert numbers(path) == [8]
    run("files", 2, path=path, overwrite=True, partitionby="word")
    assert committed_files(path) == []


def test_a_commit_object_of_a_later_version_is_refused(tmp_path):
    path = tmp_path / "t"
    run("files", 0, [batch(1)], path=str(path))
    (commit,) = (path / "_ottla").glob("*.json")
    commit.write_text(json.dumps({**json.loads(commit.read_text()), "format": 2}))
    with pytest.raises(UserError, match="has format 2, this version of Ottla reads 1: upgrade Ottla"):
        writer("files", 1, path=str(path))


def test_json_and_csv(tmp_path):
    schema = pa.schema([("n", pa.int64()), ("deep", pa.struct([("a", pa.list_(pa.int32()))])), ("price", pa.decimal128(10, 2)),
                        ("at", pa.timestamp("us", "UTC")), ("m", pa.map_(pa.string(), pa.int32()))])  # fmt: skip
    rows = [{"n": 1, "deep": {"a": [1, None]}, "price": "1.50", "at": 1_790_000_000_000_000, "m": [("k", 1)]}, {"n": 2}]
    columns = [pa.array([row.get(name) for row in rows], pa.string() if name == "price" else kind) for name, kind in zip(schema.names, schema.types, strict=True)]  # fmt: skip
    columns[2] = columns[2].cast(schema.types[2])
    run(
        "files",
        0,
        [pa.RecordBatch.from_arrays(columns, schema=schema)],
        schema=schema,
        path=f"{tmp_path}/j",
        format="json",
    )
    (file,) = committed_files(f"{tmp_path}/j")
    found = [json.loads(line) for line in Path(file).read_text("utf-8").splitlines()]
    assert found[0] == {"n": 1, "deep": {"a": [1, None]}, "price": 1.5, "at": "2026-09-21T14:13:20Z", "m": {"k": 1}}
    assert found[1] == {"n": 2, "deep": None, "price": None, "at": None, "m": None}
    with pytest.raises(UserError, match="CSV has no place for the column deep"):
        writer("files", 0, schema, path=f"{tmp_path}/c", format="csv")
    run("files", 0, [batch(1, 2)], [batch(3)], path=f"{tmp_path}/c", format="csv", partitionby="word")
    read = duckdb.sql(
        f"select n, word from read_csv('{tmp_path}/c/*/*.csv', hive_partitioning=true) order by n"
    ).fetchall()
    assert read == [(1, "w1"), (2, "w0"), (3, "w1")]
    for options, problem in (
        ({"format": "orc"}, "one of parquet, json, csv"),
        ({"keys": "n"}, "files have no keys"),
        ({"path": ""}, "path is missing"),
    ):
        with pytest.raises(UserError, match=problem):
            output("files", **{"path": "x", **options})


@pytest.mark.interop
@pytest.mark.parametrize("path", ["s3"], indirect=True)
def test_delta_in_s3(path):
    run("delta", 0, [batch(1)], [batch(2)], path=path, partitionby="word")
    made = writer("delta", 1, path=path)
    stage(made, batch(9))
    made = writer("delta", 1, path=path)
    made.commit([stage(made, batch(3))])
    run("delta", 2, [batch(1, 4)], path=path, keys="n")
    assert sorted(read_delta(path)[0].column("n").to_pylist()) == [1, 2, 3, 4]
    with pytest.raises(UserError, match=r"no-such-bucket/x.* cannot be reached"):
        writer("delta", 0, path=path.replace("lake/", "no-such-bucket/x"))
    with pytest.raises(UserError, match=r"no-such-bucket/x.* cannot be reached"):
        writer("files", 0, path=path.replace("lake/", "no-such-bucket/x"))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["files", "delta"])
def test_memory_stays_flat(kind, tmp_path):
    """A task of 400 MB in a process that may have 900 MB; pyarrow alone has 400."""
    code = f"""
import resource, sys
import pyarrow as pa
from tests.pipelines.attempts import run
block = pa.record_batch({{"n": list(range(10_000)), "word": ["x" * 1000] * 10_000}}, pa.schema([("n", pa.int64()), ("word", pa.string())]))
run({kind!r}, 0, (block for _ in range(40)), path={str(tmp_path / "t")!r})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200)
    assert int(done.stdout) < 700_000
