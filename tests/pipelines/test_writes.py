"""Writes from Spark into topics: keys, headers and partitions arrive, and each row exactly once."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from ottla.connect.exactly_once import ExactlyOnce, Fenced
from ottla.connect.sender import Outgoing, Sender
from ottla.model.user_error import UserError
from ottla.pipelines.writer import write_options, write_task

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
        query.awaitTermination(120)

    run()
    everything = Counter(f"v{n}".encode() for n in range(600))
    assert Counter(row["value"] for row in committed(target)) == everything
    for batch in ("2", ".2.crc"):
        (tmp_path / "c" / "commits" / batch).unlink()
    run()
    assert Counter(row["value"] for row in committed(target)) == everything
    # The same batch with other tasks would be skipped in parts: it is refused instead.
    (tmp_path / "c" / "commits" / "2").unlink()
    (tmp_path / "c" / "commits" / ".2.crc").unlink()
    with pytest.raises(Exception, match="its parallelism changed in the middle"):
        run(tasks=7)
    assert Counter(row["value"] for row in committed(target)) == everything


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

    monkeypatch.setattr("ottla.pipelines.writer.TWIN_S", 1.0)
    with pytest.raises(Fenced):
        write_task(options, dying(), name, 4)
    assert len(committed(name)) == len(rows)


def test_a_record_that_the_broker_refuses_is_an_error(topics, committed):
    """Only failures are reported by the producer: this is one."""
    name = topics.new("small", 1, max_message_bytes="1000")
    sender = Sender({"bootstrap.servers": topics.servers})
    sender.send([Outgoing(name, None, b"small enough")])
    sender.flush()
    sender.send([Outgoing(name, None, bytes(5000))])
    with pytest.raises(UserError, match=f"a record for {name} was not written.*MSG_SIZE_TOO_LARGE"):
        sender.flush()
    assert [row["value"] for row in committed(name)] == [b"small enough"]
