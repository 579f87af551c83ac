"""Writes from Spark into topics: keys, headers and partitions arrive, and each row exactly once."""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from ottla.connect.exactly_once import ExactlyOnce, Fenced
from ottla.connect.markers import forget_markers, markers_of
from ottla.connect.sender import Outgoing, Sender
from ottla.connect.transactions import Transactions
from ottla.model.user_error import UserError
from ottla.pipelines import writer
from ottla.pipelines.build import RunSettings
from ottla.pipelines.checkpoints import Checkpoint, LocalFiles
from ottla.pipelines.hadoop_files import HadoopFiles
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import topic
from ottla.pipelines.run import PipelineRun, StepFailed
from ottla.pipelines.unfinished import expired_batch, retention_ms, stored_unfinished_batch, unfinished_batch
from ottla.pipelines.writer import BatchWriter, StreamWriter, write_options, write_task

pytestmark = pytest.mark.timeout(600)


def test_batch_writes(spark, topics, committed):
    one, two = topics.new("one", 4), topics.new("two", 1)
    frame = spark.sql(
        f"""select cast(id as string) as key, concat('v', id) as value, if(id % 4 = 0, '{two}', '{one}') as topic,
            if(id % 4 = 0, 0, cast(id % 4 as int)) as partition,
            array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) as headers
            from range(100)"""
    )
    frame.write.format("ottla").options(**topics.options()).mode("append").save()
    rows = committed(one) + committed(two)
    assert Counter(row["value"] for row in rows) == Counter(f"v{n}".encode() for n in range(100))
    for row in rows:
        number = int(row["key"])
        assert row["value"] == b"v%d" % number
        assert row["partition"] == number % 4
        assert row["headers"] == [{"key": "n", "value": b"%d" % number}]
    # A job with a name and a version of its own is written once, however often it runs.
    for _ in range(2):
        job = frame.drop("topic", "partition").write.format("ottla")
        job.options(**topics.options(topic=one, txnAppId=one, txnVersion="3")).mode("append").save()
    assert len(committed(one)) == 75 + 100
    # Tombstones: a null value is a record with a null value.
    spark.sql("select 'gone' as key, cast(null as binary) as value").write.format("ottla").options(
        **topics.options(topic=two)
    ).mode("append").save()
    assert committed(two)[-1]["value"] is None


@pytest.mark.parametrize(
    ("query", "more", "words"),
    [
        ("select 1 as value", {"topic": "x"}, "the column value is integer"),
        ("select 'a' as key", {"topic": "x"}, "a column named value is needed"),
        ("select 'a' as value", {}, "say where to write"),
        ("select 'a' as value, cast(null as string) as topic", {}, "the topic of a row is null"),
    ],
)
def test_bad_writes_are_one_clear_error(spark, topics, query, more, words):
    with pytest.raises(Exception, match=words):
        spark.sql(query).write.format("ottla").options(**topics.options(**more)).mode("append").save()


def test_a_replayed_batch_is_written_once(spark, topics, committed, tmp_path):
    """The driver dies between the sink's commit and its own: Spark runs the batch again."""
    source, target = topics.new("in"), topics.new("out")
    topics.send(source, [(f"k{n}".encode(), f"v{n}".encode()) for n in range(600)])

    def run(tasks=None, **more):
        stream = spark.readStream.format("ottla").options(
            **topics.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="250", **more)
        )
        rows = stream.load().selectExpr("key", "value")
        query = (
            (rows.repartition(tasks) if tasks else rows)
            .writeStream.format("ottla")
            .options(**topics.options(topic=target), checkpointLocation=str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(500)

    run()
    everything = Counter(f"v{n}".encode() for n in range(600))
    assert Counter(row["value"] for row in committed(target)) == everything
    forget_commit(tmp_path / "c", 2)
    run()
    assert Counter(row["value"] for row in committed(target)) == everything
    # The batch is cut as at its first run, whatever the options are now.
    forget_commit(tmp_path / "c", 2)
    run(maxRecordsPerPartition="10")
    assert Counter(row["value"] for row in committed(target)) == everything
    # Tasks that are split otherwise would be skipped in parts: that is refused.
    forget_commit(tmp_path / "c", 2)
    with pytest.raises(Exception, match="its parallelism changed in the middle"):
        run(tasks=2)
    assert Counter(row["value"] for row in committed(target)) == everything
    # A batch whose markers may have expired is not written again without a word.
    await_no_task(spark)  # the failure of a task ends the query, and the other task may look for its marker later
    assert forget_markers({"bootstrap.servers": topics.servers}, query_id(tmp_path / "c"))
    planned_before(tmp_path / "c", 2, days=8)
    with pytest.raises(Exception, match=r"the markers of batch 2 of .* are gone"):
        run()
    assert Counter(row["value"] for row in committed(target)) == everything
    # A query that stopped between two batches needs no markers.
    (tmp_path / "c" / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    topics.send(source, [(b"k", b"v600")])
    run()
    everything[b"v600"] += 1
    assert Counter(row["value"] for row in committed(target)) == everything


def await_no_task(spark):
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    deadline = time.monotonic() + 60
    while executors.head().activeTasks():
        assert time.monotonic() < deadline, "a task of a failed query goes on"
        time.sleep(0.05)
        executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)


def forget_commit(checkpoint, batch):
    """As if the driver had died when all was written and before it noted that."""
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def query_id(checkpoint):
    return json.loads((checkpoint / "metadata").read_text())["id"]


def planned_before(checkpoint, batch, days):
    path = checkpoint / "offsets" / str(batch)
    version, facts, *ends = path.read_text().splitlines()
    planned = json.loads(facts)
    planned["batchTimestampMs"] -= days * 86_400_000
    path.write_text("\n".join([version, json.dumps(planned), *ends]))
    path.with_name(f".{batch}.crc").unlink(missing_ok=True)


def test_an_attempt_that_dies_leaves_nothing_and_a_zombie_cannot_commit(topics, committed):
    topic = topics.new("zombie", 1)
    client = {"bootstrap.servers": topics.servers}
    records = [Outgoing(topic, b"k", b"v%d" % n) for n in range(10)]

    def dies():
        yield from records[:5]
        raise RuntimeError("killed")

    with ExactlyOnce(client, topic, 0, 0, topic) as attempt:
        assert attempt.done() is None
        with pytest.raises(RuntimeError):
            attempt.write(dies())
    assert committed(topic, undecided=True) == []
    with ExactlyOnce(client, topic, 0, 0, topic) as zombie:
        assert zombie.done() is None
        with ExactlyOnce(client, topic, 0, 0, topic) as attempt:
            assert attempt.done() is None
            assert attempt.write(records).rows == 10
        with pytest.raises(UserError):
            zombie.write(records)
    assert len(committed(topic)) == 10
    with ExactlyOnce(client, topic, 0, 0, topic) as again:
        assert again.done().rows == 10
    with ExactlyOnce(client, topic, 0, 1, topic) as following:
        assert following.done() is None


@pytest.mark.parametrize("more", [0, 2000], ids=["at its end", "in its middle"])
def test_of_two_attempts_at_once_one_writes_and_neither_fails(topics, committed, monkeypatch, more):
    """Speculative execution: were the slower twin to fail, Spark would begin a third attempt, which fences the faster one."""
    monkeypatch.setattr(writer, "HELD_BYTES", 1)  # the slower attempt evaluates its rows inside its transaction
    name = topics.new("twins", 1)
    schema = StructType([StructField("value", StringType())])
    options = write_options({"kafka.bootstrap.servers": topics.servers, "topic": name}, schema)
    rows = [f"v{n}" for n in range(10 + more)]
    batches = [pa.record_batch({"value": rows[:10]}), *([pa.record_batch({"value": rows[10:]})] if more else [])]
    messages = []

    def slower():
        yield batches[0]
        messages.append(write_task(options, iter(batches), name, 3))  # the twin, from its beginning to its end
        yield from batches[1:]

    messages.append(write_task(options, slower(), name, 3))
    assert [(one.rows, one.skipped) for one in messages] == [(len(rows), False), (len(rows), True)]
    assert sorted(row["value"].decode() for row in committed(name)) == sorted(rows)

    def dying():
        yield batches[0]
        with ExactlyOnce({"bootstrap.servers": topics.servers}, name, 0, 4, name):
            pass  # a twin that begins and never comes to its end
        yield batches[0]

    monkeypatch.setattr(ExactlyOnce, "timeout_s", 1.0)  # that of a transaction, 300 s or 900 s
    with pytest.raises(Fenced):
        write_task(options, dying(), name, 4)
    assert len(committed(name)) == len(rows)


SCHEMA = StructType([StructField("value", StringType())])


class Tasks:
    """Tasks of one query, as Spark runs them: each has a partition, an attempt and local properties."""

    def __init__(self, monkeypatch, topics, partitions=1):
        self.topic = topics.new("split", partitions)
        self.options = write_options({"kafka.bootstrap.servers": topics.servers, "topic": self.topic}, SCHEMA)
        self._patch = monkeypatch
        self.ids = itertools.count()

    def run(self, batch, task, *rows, run="first", attempt=0, attempt_id=None, **columns):
        local = {"sql.streaming.queryId": self.topic, "streaming.sql.batchId": str(batch), "spark.jobGroup.id": run}
        ids = self.ids if attempt_id is None else itertools.repeat(attempt_id)
        context = SimpleNamespace(
            partitionId=lambda: task,
            attemptNumber=lambda: attempt,
            taskAttemptId=functools.partial(next, ids),
            getLocalProperty=local.get,
        )
        self._patch.setattr("ottla.pipelines.writer.TaskContext", SimpleNamespace(get=lambda: context))
        batches = [pa.record_batch({"value": list(rows), **columns})] if rows else []
        return StreamWriter(self.options).write(iter(batches))

    def commit(self, batch, *messages):
        StreamWriter(self.options).commit(list(messages), batch)


@pytest.mark.parametrize(
    ("written", "repeated"),
    [
        ({1: ["c"]}, {1: []}),
        ({1: ["c"]}, {1: ["c", "d"]}),
        ({1: ["c"]}, {1: ["d"]}),
        ({2: ["c"]}, {0: ["a"], 1: ["b", "c"]}),
        ({17: ["c"]}, {0: ["a"], 1: ["b", "c"]}),
        ({0: ["a"], 1: ["b"]}, {0: ["b"], 1: ["a"]}),
    ],
    ids=[
        "empty now",
        "more rows",
        "other rows of the same size",
        "fewer tasks",
        "fewer tasks, another group",
        "swapped",
    ],
)
def test_a_repeated_batch_that_is_split_otherwise_is_an_error(monkeypatch, topics, written, repeated):
    """The driver died after some tasks were written; what these tasks had is now in other tasks."""
    tasks = Tasks(monkeypatch, topics)
    for task, rows in written.items():
        tasks.run(5, task, *rows)

    def repeat():
        messages = [tasks.run(5, task, *rows, run="second") for task, rows in repeated.items()]
        tasks.commit(5, *messages)

    with pytest.raises(UserError, match="its parallelism changed in the middle"):
        repeat()


def test_a_repeated_batch_with_more_tasks_is_right_when_written_tasks_have_the_same_rows(
    monkeypatch, topics, committed
):
    tasks = Tasks(monkeypatch, topics)
    tasks.run(5, 0, "a", "b")
    repeated = [["b", "a"], [], ["c"], ["d"]]
    messages = [tasks.run(5, task, *rows, run="second") for task, rows in enumerate(repeated)]
    tasks.commit(5, *messages)
    assert [(one.rows, one.skipped) for one in messages] == [(2, True), (0, False), (1, False), (1, False)]
    assert sorted(row["value"] for row in committed(tasks.topic)) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("column", ["key", "_identity"])
def test_a_repeated_row_keeps_its_identity_and_not_its_value(monkeypatch, topics, committed, column):
    """A sum of doubles after a shuffle depends on the order of the additions, which differs from run to run."""
    tasks = Tasks(monkeypatch, topics)
    tasks.run(5, 0, "0.6000000000000001", "1.5", **{column: ["a", "b"]})
    repeated = tasks.run(5, 0, "1.5", "0.6", run="second", **{column: ["b", "a"]})
    assert (repeated.rows, repeated.skipped) == (2, True)
    assert sorted(row["value"] for row in committed(tasks.topic)) == [b"0.6000000000000001", b"1.5"]
    for others in (["a", "c"], ["a", "a"]):
        with pytest.raises(UserError, match="its parallelism changed in the middle"):
            tasks.run(5, 0, "0.6000000000000001", "1.5", run="third", **{column: others})


def test_a_marker_of_an_earlier_version_counts_rows(monkeypatch, topics):
    tasks = Tasks(monkeypatch, topics)
    monkeypatch.setattr("ottla.connect.markers.Marker.to_json", lambda self: json.dumps(
        {"format": 2, "version": self.version, "rows": self.rows, "bytes": self.size, "sum": 7}
    ))  # fmt: skip
    tasks.run(5, 0, "0.6000000000000001")
    monkeypatch.undo()
    assert Tasks.run(tasks, 5, 0, "0.6", run="second").skipped
    with pytest.raises(UserError, match="its parallelism changed in the middle"):
        tasks.run(5, 0, "a", "b", run="third")


@pytest.mark.parametrize("keyed", [True, False], ids=["with keys", "without keys"])
def test_a_repeated_batch_may_have_other_doubles(spark, topics, committed, tmp_path, keyed):
    """A random double differs at each run, as the last bit of a sum may."""
    source = topics.new("doubles", 1)
    target = f"{source}-out"
    topics.send(source, [(None, b'{"n": %d}' % n) for n in range(19)] + [(None, b"{}")])
    pipeline = Pipeline("doubles")

    @pipeline.step(
        reads={"rows": topic(source, value="json", schema="n long")},
        writes=topic(target, value="json", key="n" if keyed else None),
    )
    def share(rows):
        return rows.selectExpr("n", "rand() as share", "named_struct('half', rand()) as parts")

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))
    PipelineRun(spark, pipeline, settings).once()
    first = sorted(row["value"] for row in committed(target))
    forget_commit(tmp_path / "doubles" / "share", 0)
    PipelineRun(spark, pipeline, settings).once()
    assert sorted(row["value"] for row in committed(target)) == first
    numbers = Counter(json.loads(value).get("n") for value in first)
    assert numbers == Counter([None, *range(19)])


def test_a_batch_job_with_a_name_checks_its_empty_tasks_too(monkeypatch, topics):
    monkeypatch.setattr("ottla.pipelines.writer.TaskContext", SimpleNamespace(get=lambda: None))
    name = topics.new("job", 1)

    def job(*rows, **more):
        options = {
            "kafka.bootstrap.servers": topics.servers,
            "topic": name,
            "txnAppId": name,
            "txnVersion": "3",
            **more,
        }
        batches = [pa.record_batch({"value": list(rows)})] if rows else []
        return BatchWriter(write_options(options, SCHEMA)).write(iter(batches))

    assert job("a").rows == 1
    with pytest.raises(UserError, match="its parallelism changed in the middle"):
        job()
    assert job(newVersion="true").rows == 0


def test_an_empty_task_costs_nothing_after_the_first_batch_of_a_run(monkeypatch, topics):
    """Only the first batch of a run may be a repeated one; a second attempt at a task may be one in every batch."""
    tasks, entered = Tasks(monkeypatch, topics), []

    class Counted(ExactlyOnce):
        def __enter__(self):
            entered.append((self._task, self.version))
            return super().__enter__()

    monkeypatch.setattr(writer, "ExactlyOnce", Counted)
    monkeypatch.setattr(writer, "markers_of", lambda *_: entered.append("driver") or {})
    tasks.commit(5, tasks.run(5, 0), tasks.run(5, 1))
    assert entered == [(0, 5), (1, 5), "driver"]
    tasks.commit(6, tasks.run(6, 0), tasks.run(6, 1))
    assert len(entered) == 3
    tasks.run(6, 1, attempt=1)
    assert entered[3:] == [(1, 6)]
    tasks.run(6, 0, run="second")
    assert entered[4:] == [(0, 6)]


def test_a_resubmitted_stage_counts_attempts_from_0_again(monkeypatch, topics, committed):
    """An executor is lost after its task has written; Spark runs the stage again. The task has the attempt number 0."""
    tasks, listed = Tasks(monkeypatch, topics), []
    monkeypatch.setattr(writer, "markers_of", lambda *words: listed.append(1) or markers_of(*words))
    tasks.commit(5, tasks.run(5, 0), tasks.run(5, 1))  # the first batch of a run
    listed.clear()
    tasks.commit(6, tasks.run(6, 0, "a", attempt_id=40), tasks.run(6, 1, attempt_id=41))
    assert listed == [], "each task ran once: the ids have no gap"
    lost = tasks.run(7, 1, "c", attempt_id=51)
    tasks.commit(7, tasks.run(7, 0, "b", attempt_id=50), tasks.run(7, 1, "c", attempt_id=52))
    assert lost.rows == 1
    assert sorted(row["value"] for row in committed(tasks.topic)) == [b"a", b"b", b"c"]
    tasks.run(8, 1, "d", attempt_id=61)
    with pytest.raises(
        UserError, match="was written by task 1 with 1 rows, and now has no rows: the query or its para"
    ):
        tasks.commit(8, tasks.run(8, 0, "d", attempt_id=60), tasks.run(8, 1, attempt_id=62))


def test_a_transaction_opens_when_the_rows_of_a_task_are_ready(monkeypatch, topics, committed):
    """A task of ten minutes would never commit in a transaction of five."""
    tasks, events = Tasks(monkeypatch, topics), []
    begin, timeouts = Transactions.begin, []
    start = Transactions.__init__

    def starting(self, *arguments, timeout_ms=None, **more):
        timeouts.append(timeout_ms)
        start(self, *arguments, timeout_ms=timeout_ms, **more)

    monkeypatch.setattr(Transactions, "__init__", starting)
    monkeypatch.setattr(Transactions, "begin", lambda self: events.append("begin") or begin(self))

    def rows():
        for text in ("a", "b", "c"):
            events.append(text)
            yield pa.record_batch({"value": [text]})

    write_task(tasks.options, rows(), tasks.topic, 1)
    assert events == ["a", "b", "c", "begin"]
    assert timeouts == [None]
    # More rows than a task holds: the transaction is open while the rest is evaluated, for as long as brokers accept.
    events.clear()
    monkeypatch.setattr(writer, "HELD_BYTES", 1)
    write_task(tasks.options, rows(), tasks.topic, 2)
    assert events == ["a", "begin", "b", "c"]
    assert timeouts == [None, 900_000]
    assert [row["value"] for row in committed(tasks.topic)] == [b"a", b"b", b"c"] * 2


def test_a_batch_is_expired_when_brokers_may_have_removed_its_first_markers(spark, tmp_path, topics):
    client = {"bootstrap.servers": topics.servers}
    week_ms = 7 * 86_400_000
    assert retention_ms(client) == week_ms
    query = tmp_path / "p" / "query"
    for name in ("offsets", "commits"):
        (query / name).mkdir(parents=True)
    local = Checkpoint(LocalFiles(), f"{tmp_path}/p")
    checkpoints = [local, Checkpoint(HadoopFiles(spark, f"file:{tmp_path}"), f"file:{tmp_path}/p")]
    assert [unfinished_batch(checkpoint, "query") for checkpoint in checkpoints] == ["", ""]
    (query / "offsets" / "9").write_text('v1\n{"batchTimestampMs":1000}\n{}')
    (query / "offsets" / "10").write_text('v1\n{"batchTimestampMs":2000}\n{}')
    (query / "commits" / "9").touch()
    assert [unfinished_batch(checkpoint, "query") for checkpoint in checkpoints] == ["10:2000", "10:2000"]
    places = (str(query), query.as_uri(), "")
    assert [stored_unfinished_batch(place) for place in places] == ["10:2000", "10:2000", ""]
    assert expired_batch(client, "10:2000", 1999 + week_ms) is None
    assert expired_batch(client, "10:2000", 2000 + week_ms) == 10
    assert expired_batch(client, "", 2000 + week_ms) is None
    (query / "offsets" / "11").write_text("v1")
    assert unfinished_batch(local, "query") == ""  # half a file, which Spark reports
    (query / "offsets" / "11").unlink()
    (query / "commits" / "10").touch()
    assert [unfinished_batch(checkpoint, "query") for checkpoint in checkpoints] == ["", ""]


@pytest.mark.parametrize("mode", ["append", "update"], ids=["stream writer", "foreachBatch"])
def test_markers_of_a_remote_checkpoint_expire_too(spark, topics, tmp_path, mode):
    """A writer cannot open the checkpoint, so the pipeline reads which batch is unfinished and since when."""
    source = topics.new("far", 1)
    mounts = spark.sparkContext._jsc.hadoopConfiguration()  # a name of its own, because Hadoop keeps open file systems
    mounts.set(f"fs.viewfs.mounttable.{source}.link./c", tmp_path.as_uri())
    topics.send(source, [(None, b'{"n": 1}')])
    pipeline = Pipeline(f"far-{mode}")

    @pipeline.step(
        reads={"rows": topic(source, value="json", schema="n long")},
        writes=topic(f"{source}-out", value="json", key="n"),
        output_mode=mode,
    )
    def copy(rows):
        return rows.select("n")

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=f"viewfs://{source}/c")
    PipelineRun(spark, pipeline, settings).once()
    checkpoint = tmp_path / f"far-{mode}" / "copy"
    forget_commit(checkpoint, 0)
    planned_before(checkpoint, 0, days=8)
    PipelineRun(spark, pipeline, settings).once()  # its marker is there, however old the batch is
    forget_commit(checkpoint, 0)
    assert forget_markers({"bootstrap.servers": topics.servers}, query_id(checkpoint))
    with pytest.raises(StepFailed, match=r"the markers of batch 0 of .* are gone"):
        PipelineRun(spark, pipeline, settings).once()


def test_a_record_that_the_broker_refuses_is_an_error(topics, committed):
    """Only failures are reported by the producer: this is one."""
    name = topics.new("small", 1, max_message_bytes="1000")
    sender = Sender({"bootstrap.servers": topics.servers})
    sender.send([Outgoing(name, None, b"small enough")])
    sender.flush()
    sender.send([Outgoing(name, None, bytes(5000))])
    with pytest.raises(UserError, match=f"a record for {name} of 5,000 bytes is larger than the topic allows"):
        sender.flush()
    assert [row["value"] for row in committed(name)] == [b"small enough"]
