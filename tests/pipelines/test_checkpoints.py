"""A checkpoint belongs to one pipeline, one cluster and one driver, wherever it is stored."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.client.cluster import Cluster
from ottla.client.groups import list_groups
from ottla.client.settings import client_settings
from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines import driver_lock
from ottla.pipelines.build import RunSettings, trigger_of
from ottla.pipelines.checkpoints import (
    Checkpoint,
    ConnectFiles,
    LocalFiles,
    checkpoint_root,
    open_files,
)
from ottla.pipelines.dead_letters import letter_queries, with_stored_names
from ottla.pipelines.driver_lock import DriverFenced, DriverLock
from ottla.pipelines.hadoop_files import HadoopFiles
from ottla.pipelines.identity import check_identity
from ottla.pipelines.pins import refuse_remote_tables
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import changes_of, table_of, topic
from ottla.pipelines.positions import Positions
from ottla.pipelines.run import PipelineRun, StepFailed
from ottla.tables.topics import ClusterTopics, settings_from
from ottla.testing import Broker

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def server(ottla_server):
    """These are about checkpoints, not about servers: one will do."""
    return ottla_server


def copying(spark, servers, checkpoints, source, target, **more):
    made = Pipeline("copying")

    @made.step(reads={"rows": topic(source, value="json", schema="n long")}, writes=topic(target, value="json"))
    def copy(rows):
        return rows.select("n")

    return PipelineRun(spark, made, RunSettings(bootstrap_servers=servers, checkpoints=str(checkpoints), **more))


def test_a_checkpoint_of_a_different_cluster_is_refused_before_anything_is_created(spark, topics, tmp_path):
    source = topics.new("identity", 1)
    topics.send(source, [(None, b'{"n": %d}' % n) for n in range(3)])
    copying(spark, topics.servers, tmp_path, source, f"{source}-out").once()
    with Broker() as elsewhere:
        from tests.pipelines.conftest import Topics

        there = Topics(elsewhere)
        there.make(source, 1)
        there.send(source, [(None, b'{"n": %d}' % n) for n in range(5)])
        again = copying(spark, elsewhere.bootstrap_servers, tmp_path, source, f"{source}-out")
        with pytest.raises(UserError, match=r"belongs to the cluster \S+, and this is the cluster .* pipeline reset"):
            again.once()
        assert f"{source}-out" not in there._admin.list_topics(timeout=10).topics, "the output was created"


def stored(tmp_path, note, positions, query="copy"):
    folder = tmp_path / "copying"
    (folder / query / "offsets").mkdir(parents=True)
    (folder / query / "metadata").write_text('{"id":"q-1"}')
    text = json.dumps(positions.to_json() if isinstance(positions, Positions) else positions)
    (folder / query / "offsets" / "7").write_text(f"v1\n{{}}\n{text}")
    (folder / query / "offsets" / "10").write_text(f"v1\n{{}}\n{text}")
    if note:
        (folder / "ottla.json").write_text(json.dumps({"version": 1, **note}))
    return Checkpoint(LocalFiles(), str(folder))


def reading(name, **options):
    made = Pipeline("copying")
    made.step(reads={"rows": topic(name, options=options)}, writes=topic("out"))(copy_rows)
    return made


def copy_rows(rows):
    return rows


AT_3 = {TopicPartition("in", 0): 3}
HERE = ClusterTopics(cluster_id="here", topic_ids={"in": "id-1"})


@pytest.mark.parametrize(
    ("note", "positions", "pipeline", "problem"),
    [
        ({"cluster": "here"}, Positions(offsets=AT_3, topic_ids={"in": "id-1"}), reading("in"), None),
        # The topic's id decides: a cluster may be restored under a new id.
        ({"cluster": "away"}, Positions(offsets=AT_3, topic_ids={"in": "id-1"}), reading("in"), None),
        ({"cluster": "here"}, Positions(offsets=AT_3, topic_ids={"in": "id-2"}), reading("in"), "created again"),
        ({"cluster": "away"}, Positions(offsets=AT_3, topic_ids={"in": "id-2"}), reading("in"), "the cluster away"),
        ({}, Positions(offsets=AT_3, topic_ids={"in": "id-2"}), reading("in"), "created again"),
        (
            {"cluster": "away"},
            Positions(offsets=AT_3, topic_ids={"in": "id-2"}),
            reading("in", onTopicRecreated="restart"),
            None,
        ),
        # Offsets of Spark's own source have no ids: the cluster decides.
        ({"cluster": "here"}, {"in": {"0": 3}}, reading("in"), None),
        ({"cluster": "away"}, {"in": {"0": 3}}, reading("in"), "the cluster away"),
        ({}, {"in": {"0": 3}}, reading("in"), None),
        # Sources of other kinds.
        ({"cluster": "away"}, {"seqNum": 1}, reading("in"), None),
        ({"cluster": "here"}, Positions(offsets={TopicPartition("b", 0): 1}), reading("in"), "a different pipeline"),
    ],
)  # fmt: skip
def test_what_a_checkpoint_is_bound_to(tmp_path, note, positions, pipeline, problem):
    query = "copy-rows" if problem != "created again" else "copy-rows.rows.dead-letters"
    checkpoint = stored(tmp_path, note, positions, query)
    if problem is None:
        check_identity(pipeline, checkpoint, HERE)
        return
    with pytest.raises(UserError, match=problem) as refusal:
        check_identity(pipeline, checkpoint, HERE)
    assert len(str(refusal.value).splitlines()) == 1
    assert "pipeline reset" in str(refusal.value)


def test_dead_letters_are_bound_by_their_topic_and_not_by_a_step_of_a_similar_name(tmp_path):
    there = ClusterTopics(cluster_id="here", topic_ids={"copy-rows.x": "id-1"})
    positions = Positions(offsets={TopicPartition("copy-rows.x", 0): 3}, topic_ids={"copy-rows.x": "id-2"})
    checkpoint = stored(tmp_path, {"cluster": "here"}, positions, "copy-rows.x~bad")
    check_identity(reading("in"), checkpoint, there)  # no step reads the topic now
    with pytest.raises(UserError, match="created again"):
        check_identity(reading("copy-rows.x"), checkpoint, there)


@pytest.mark.parametrize(
    ("checkpoints", "table", "source_format", "refused"),
    [
        ("s3a://bucket/a", table_of(topic("users")), "ottla", True),
        ("hdfs://host/a", table_of(topic("users")), "ottla", True),
        ("s3a://bucket/a", changes_of(topic("users")), "ottla", False),
        ("s3a://bucket/a", table_of(topic("users")), "kafka", False),  # has no ends to store
        ("/data/a", table_of(topic("users")), "ottla", False),
    ],
)
def test_the_ends_of_a_global_table_need_a_local_checkpoint(checkpoints, table, source_format, refused):
    made = Pipeline("tables")
    made.step(reads={"rows": topic("in"), "users": table}, writes=topic("out"))(lambda rows, users: rows)
    settings = RunSettings(bootstrap_servers="", checkpoints=checkpoints, source_format=source_format)
    if not refused:
        refuse_remote_tables(made.steps, settings)
        return
    with pytest.raises(
        UserError, match=r"users with table_of.* use changes_of and join, or a local checkpoint"
    ) as error:
        refuse_remote_tables(made.steps, settings)
    assert len(str(error.value).splitlines()) == 1


def test_a_checkpoint_of_a_later_version_is_refused(tmp_path):
    checkpoint = stored(tmp_path, {"cluster": "here", "version": 2}, Positions(offsets=AT_3))
    with pytest.raises(UserError, match="has version 2, this Ottla reads up to 1"):
        check_identity(reading("in"), checkpoint, HERE)


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("ottla.json", "{", "ottla.json is not JSON"),
        ("ottla.json", "[]", "ottla.json is not JSON with names and values: it is damaged"),
        ("ottla.letters.json", "7", "ottla.letters.json is not JSON with"),
        ("copy/offsets/10", 'v1\n{}\n{"in": {"0"', "the positions in .*/copy/offsets/10 are damaged"),
        ("copy/metadata", "{", "does not name its query"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, path, text, words):
    checkpoint = stored(tmp_path, {"cluster": "here"}, Positions(offsets=AT_3))
    (tmp_path / "copying" / path).write_text(text)

    def look():
        check_identity(copying_pipeline("in"), checkpoint, HERE)
        with_stored_names(letter_queries(copying_pipeline("in").steps), checkpoint)
        checkpoint.query_id("copy")

    with pytest.raises(UserError, match=words) as refusal:
        look()
    assert len(str(refusal.value).splitlines()) == 1


def copying_pipeline(name):
    made = Pipeline("copying")
    made.step(reads={"rows": topic(name, value="json", schema="n int", dead_letter="bad")}, writes=topic("out"))(copy)
    return made


def copy(rows):
    return rows


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("s3a://bucket/a/", "s3a://bucket/a"),
        ("file:///data/a", "/data/a"),
        ("file:/data/a", "/data/a"),
        ("abfss://c@account/x", "abfss://c@account/x"),
        ("a:b", f"{os.getcwd()}/a:b"),  # noqa: PTH109 - as the code joins it
    ],
)
def test_where_checkpoints_are(text, root):
    assert checkpoint_root(text) == root


def test_checkpoints_that_spark_cannot_open_are_refused_before_anything_is_created(
    spark, topics, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    source = topics.new("scheme", 1)
    for location, words in (
        ("nowhere://bucket/a", "have the unknown scheme nowhere: use a local path, s3a, gs, abfs or hdfs"),
        ("s3a://bucket/a", r"need the jar of Hadoop's s3a file system: .*hadoop-aws"),
    ):
        with pytest.raises(UserError, match=words):
            copying(spark, topics.servers, checkpoint_root(location), source, f"{source}-out").once()
    with pytest.raises(UserError, match="write s3a://"):
        checkpoint_root("s3://bucket/a")
    assert list(tmp_path.iterdir()) == []
    assert f"{source}-out" not in topics._admin.list_topics(timeout=10).topics


@pytest.mark.parametrize("kind", ["local", "hadoop", "connect"])
def test_the_files_of_a_checkpoint(spark, tmp_path, kind):
    root = f"{tmp_path}/checkpoints"
    files = {
        "local": LocalFiles,
        "hadoop": lambda: HadoopFiles(spark, f"file:{root}"),
        "connect": lambda: ConnectFiles(spark),
    }[kind]()
    assert files.read(f"{root}/p/a") is None
    assert files.names(f"{root}/p") == []
    assert files.create(f"{root}/p/a.json", '{"é": 1}\n')
    assert not files.create(f"{root}/p/a.json", "2")
    assert files.read(f"{root}/p/a.json").strip() == '{"é": 1}'
    files.write(f"{root}/p/a.json", "3")
    assert files.read(f"{root}/p/a.json").strip() == "3"
    assert LocalFiles().read(f"{root}/p/a.json").strip() == "3", "a later session on this machine reads it"
    LocalFiles().write(f"{root}/p/query/offsets/0", "v1")
    assert files.names(f"{root}/p") == ["a.json", "query"]
    assert files.names(f"{root}/p/query/offsets") == ["0"]
    if kind == "connect":
        assert HadoopFiles(spark, root).read(f"{root}/p/a.json").strip() == "3", "a later session with a JVM reads it"
        with pytest.raises(UserError, match="--master instead of --remote"):
            files.remove(f"{root}/p")
        assert not LocalFiles().create(f"{root}/p/a.json", "4")
        LocalFiles().write(f"{root}/p/a.json", "4")
        assert LocalFiles().read(f"{root}/p/a.json") == files.read(f"{root}/p/a.json") == "4"
        return
    files.remove(f"{root}/p/query")
    files.remove(f"{root}/p/nothing")
    assert files.names(f"{root}/p") == ["a.json"]


def test_own_files_are_no_queries(spark, tmp_path):
    for files, root in ((LocalFiles(), str(tmp_path)), (HadoopFiles(spark, f"file:{tmp_path}"), f"file:{tmp_path}")):
        checkpoint = Checkpoint(files, f"{root}/p")
        checkpoint.noted(id="x")
        checkpoint.note_finished(["copy"])
        LocalFiles().write(f"{tmp_path}/p/copy/metadata", '{"id": "q"}')
        assert checkpoint.queries() == ["copy"]
        assert checkpoint.finished() == {"copy"}


def test_a_local_checkpoint_stays_local_with_another_default_file_system(spark, topics, committed, tmp_path):
    """Spark opens a path without a scheme with fs.defaultFS, and our own code on this machine."""
    source = topics.new("default-fs", 1)
    topics.send(source, [(None, b'{"n": 1}')])
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "nowhere://host")
    try:
        copying(spark, topics.servers, tmp_path / "a b%20c", source, f"{source}-out").once()
    finally:
        hadoop.set("fs.defaultFS", before)
    assert len(committed(f"{source}-out")) == 1
    assert (tmp_path / "a b%20c" / "copying" / "copy" / "commits" / "0").is_file()


def test_a_run_over_what_is_there_notes_its_end_and_stops_its_queries(spark, topics, tmp_path):
    source = topics.new("ends", 1)
    topics.send(source, [(None, b'{"n": 1}'), (None, b"{")])
    checkpoint = Checkpoint(LocalFiles(), f"{tmp_path}/copying")
    failing = copying(spark, topics.servers, tmp_path, source, f"{source}-out")
    with pytest.raises(StepFailed, match="bad record"):
        failing.once()
    assert checkpoint.finished() == set()
    interrupted = copying(spark, topics.servers, tmp_path, source, f"{source}-out")
    with pytest.raises(KeyboardInterrupt):
        interrupted.once(interrupt)
    assert [running.query.isActive for running in interrupted.running] == [False]
    stopped = copying(spark, topics.servers, tmp_path, source, f"{source}-out")
    stopped.stop()
    stopped.once()
    assert checkpoint.finished() == set()
    other = topics.new("good", 1)
    copying(spark, topics.servers, tmp_path / "good", other, f"{source}-out").once()
    assert Checkpoint(LocalFiles(), f"{tmp_path}/good/copying").finished() == {"copy"}


def interrupt(_):
    raise KeyboardInterrupt


def test_the_pause_between_batches():
    made = Pipeline("pauses")
    made.step(reads={"rows": topic("a")}, writes=topic("b"))(copy_rows)

    def slow(rows):
        return rows

    made.step(reads={"rows": topic("a")}, writes=topic("c"), trigger="3 seconds")(slow)
    local, store = (RunSettings(bootstrap_servers="b", checkpoints=root) for root in ("/data/a", "s3a://bucket/a"))
    assert [trigger_of(step, local) for step in made.steps] == ["1 second", "3 seconds"]
    assert [trigger_of(step, store) for step in made.steps] == ["10 seconds", "3 seconds"]


def lock(topics, checkpoint):
    return DriverLock(
        settings_from({"bootstrap.servers": topics.servers}), checkpoint, checkpoint.folder.replace("/", "-")
    )


def test_a_driver_that_is_gone_is_fenced_and_notices(topics, tmp_path, monkeypatch):
    """A driver that was paused for long goes on beside its successor: the coordinator refuses its next heartbeat."""
    monkeypatch.setattr(driver_lock, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(driver_lock, "WATCH_S", 0.2)
    checkpoint = Checkpoint(LocalFiles(), str(tmp_path / "p"))
    holder_file = tmp_path / "p" / "ottla.driver.json"
    first = lock(topics, checkpoint)
    resume = threading.Event()
    paused = first._raise_epoch
    first._raise_epoch = lambda: (
        resume.wait(60) if first._heart.ident else None,
        paused(),
    )  # SIGSTOP, and later SIGCONT
    with first:
        holder_file.write_text(json.dumps(json.loads(holder_file.read_text()) | {"host": "far-away"}))
        with lock(topics, checkpoint) as second:
            first.check()
            resume.set()
            deadline = time.monotonic() + 60
            while not first._fenced.is_set():
                assert time.monotonic() < deadline, "the first driver goes on"
                time.sleep(0.02)
            with pytest.raises(
                DriverFenced, match=rf"process {os.getpid()} has taken the checkpoint .*: this process stops"
            ):
                first.check()
            second.check()
    assert json.loads(holder_file.read_text())["running"] is False


def test_a_driver_that_does_not_know_that_it_was_fenced_leaves_the_note_of_its_successor(topics, tmp_path, monkeypatch):
    """It was paused, and ends before its next heartbeat. A third driver must be refused while the successor runs."""
    monkeypatch.setattr(driver_lock, "WATCH_S", 60.0)
    checkpoint = Checkpoint(LocalFiles(), str(tmp_path / "p"))
    note = tmp_path / "p" / "ottla.driver.json"
    first, second, third = (lock(topics, checkpoint) for _ in range(3))
    monkeypatch.setattr(first, "_beat", lambda: None)
    first._heart = threading.Thread(target=lambda: None)
    first.__enter__()
    monkeypatch.setattr(driver_lock, "HEARTBEAT_S", 0.05)
    note.write_text(json.dumps(json.loads(note.read_text()) | {"running": False}))  # as if it were gone
    with second:
        held = json.loads(note.read_text())
        first.__exit__(None, None, None)
        assert json.loads(note.read_text()) == held
        # The end of a paused driver is noted between the look at the note and its write: the epoch in it is too old.
        note.write_text(json.dumps(held | {"running": False, "producer": first._producer}))
        with pytest.raises(UserError, match=r"is in use by process \? on a different machine"), third:
            pytest.fail("two drivers")
        second.check()
        note.write_text(json.dumps(held))
    monkeypatch.setattr(driver_lock, "_held", set())
    with lock(topics, checkpoint) as fourth:  # the noted epoch is the newest: no wait
        fourth.check()


def test_a_driver_on_a_different_machine_is_heard(topics, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_lock, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(driver_lock, "WATCH_S", 60.0)
    checkpoint = Checkpoint(LocalFiles(), str(tmp_path / "p"))
    with lock(topics, checkpoint) as first:
        holder_file = tmp_path / "p" / "ottla.driver.json"
        holder_file.write_text(json.dumps(json.loads(holder_file.read_text()) | {"host": "far-away", "pid": 7}))
        with (
            pytest.raises(UserError, match=r"is in use by process 7 on far-away: stop that one, or give"),
            lock(topics, checkpoint),
        ):
            pytest.fail("two drivers")
        for damaged in ("", '{"host": "far', "[]"):
            holder_file.write_text(damaged)
            with (
                pytest.raises(UserError, match=r"is in use by process \? on a different machine"),
                lock(topics, checkpoint),
            ):
                pytest.fail("two drivers")
        first.check()


def test_a_fenced_driver_stops_its_queries(spark, topics, tmp_path):
    source = topics.new("fenced", 1)
    topics.send(source, [(None, b'{"n": 1}')])
    run = copying(spark, topics.servers, tmp_path, source, f"{source}-out")

    def take(run):
        run._lock._fenced.set()

    with pytest.raises(DriverFenced, match="has taken the checkpoint"):
        run.continuously(take, poll_s=0.05)
    assert [running.query for running in run.running if running.query is not None and running.query.isActive] == []


def test_a_local_session_opens_local_files(spark):
    assert isinstance(open_files(spark, "/data/a"), LocalFiles)


def test_a_reset_forgets_positions_and_markers(spark, topics, committed, tmp_path):
    """The next start reads from the beginning. Two resets: the second has nothing to forget."""
    source, target = topics.new("reset", 1), topics.new("out", 1)
    topics.send(source, [(None, b'{"n": %d}' % n) for n in range(3)])
    run = copying(spark, topics.servers, tmp_path / "state" / "checkpoints", source, target)
    run.once()
    words = ["pipeline", "reset", "copying", "--state", str(tmp_path / "state"), "-b", topics.servers]
    with run._locked():
        refused = CliRunner().invoke(ottla, [*words, "--yes"])
        assert "is in use by process" in refused.output
    (tmp_path / "state" / "copying.status.json").write_text(json.dumps({"name": "copying", "state": "running"}))
    (tmp_path / "state" / "copying.json").write_text(json.dumps({"pid": os.getpid(), "started": time.time()}))
    assert "copying is running: stop it first" in CliRunner().invoke(ottla, [*words, "--yes"]).output
    (tmp_path / "state" / "copying.json").unlink()
    assert CliRunner().invoke(ottla, words, input="n\n").exit_code == 1
    with Broker() as elsewhere:
        away = CliRunner().invoke(ottla, [*words[:-1], elsewhere.bootstrap_servers, "--yes"])
        assert re.search(
            r"belongs to the cluster \S+, and this is the cluster \S+: give --bootstrap-servers", away.output
        )
        gone = tmp_path / "gone"
        shutil.copytree(tmp_path / "state" / "checkpoints" / "copying", gone / "checkpoints" / "copying")
        words_gone = ["pipeline", "reset", "copying", "--state", str(gone), "-b", elsewhere.bootstrap_servers, "--yes"]
        done = CliRunner().invoke(ottla, [*words_gone, "--cluster-gone"])
        assert "copying: forgot 1 queries and 0 groups of markers" in done.output
    query_id = Checkpoint(LocalFiles(), f"{tmp_path}/state/checkpoints/copying").query_id("copy")
    assert any(query_id in name for name in groups(topics))
    assert "copying.copy" in groups(topics)
    done = CliRunner().invoke(ottla, words, input="y\n")
    assert "copying: forgot 1 queries and 1 groups of markers" in done.output
    assert not any(query_id in name for name in groups(topics))
    assert "copying.copy" not in groups(topics)
    assert not (tmp_path / "state" / "checkpoints" / "copying").exists()
    again = CliRunner().invoke(ottla, [*words, "--yes"])
    assert again.exit_code == 1
    assert "there is no checkpoint" in again.output
    copying(spark, topics.servers, tmp_path / "state" / "checkpoints", source, target).once()
    assert len(committed(target)) == 6


def groups(topics):
    with Cluster(client_settings(topics.servers, {}, client_id="test")) as cluster:
        return [group.group_id for group in list_groups(cluster)]
