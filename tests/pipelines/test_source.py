"""format("ottla") reads what a Kafka client reads, with the options and columns of Spark's own Kafka source."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.committed import await_decided

pytestmark = pytest.mark.timeout(600)

START_MS = int(time.time() * 1000) - 3_600_000
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def read(spark, options):
    return spark.read.format("ottla").options(**options).load()


def by_client(servers: str, topic: str, partitions: int, isolation: str = "read_uncommitted") -> set[tuple]:
    """An independent view: librdkafka's consumer."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "check", "isolation.level": isolation, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    found, ended = set(), 0
    while ended < partitions:
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended += 1
            continue
        headers = tuple(message.headers() or ())
        found.add(
            (message.key(), message.value(), message.partition(), message.offset(), message.timestamp()[1], headers)
        )
    consumer.close()
    return found


def as_set(rows) -> set[tuple]:
    return {
        (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.partition,
            row.offset,
            round(row.ms),
            tuple((one.key, None if one.value is None else bytes(one.value)) for one in row.headers or ()),
        )
        for row in rows
    }


def test_batch_reads(spark, topics, server):
    topic = topics.new("batch")
    records = [
        (
            None if n % 10 == 0 else f"k{n}".encode(),
            None if n % 17 == 0 else f"v{n}".encode() * (n % 5),
            START_MS + n * 1000,
            [("n", str(n).encode()), ("none", None)] if n % 3 == 0 else None,
        )
        for n in range(2000)
    ]
    topics.send(topic, records)
    mine = topics.options(subscribe=topic)
    frame = read(spark, {**mine, "includeHeaders": "true"})
    assert frame.columns == [*COLUMNS, "headers"]
    expected = by_client(topics.servers, topic, 3)
    millis = "unix_micros(timestamp) / 1000 as ms"
    assert as_set(frame.selectExpr("*", millis).collect()) == expected
    assert len(expected) == 2000

    plain = read(spark, mine)
    assert plain.columns == COLUMNS
    assert {row.timestampType for row in plain.select("timestampType").distinct().collect()} == {0}

    # Segment files give the same rows as the wire, with no broker asked.
    direct = read(spark, {"path": str(server.data_dir), "subscribe": topic, "includeHeaders": "true"})
    assert as_set(direct.selectExpr("*", millis).collect()) == expected

    # Large partitions are read by several tasks.
    split = read(spark, {**mine, "minPartitions": "7"})
    assert split.rdd.getNumPartitions() >= 7
    assert split.select("partition", "offset").distinct().count() == 2000

    # Offsets and times, per partition and for all.
    ends = {p: max(row[3] for row in expected if row[2] == p) + 1 for p in range(3)}
    some = json.dumps({topic: {"0": 10, "1": -2, "2": ends[2]}})
    until = json.dumps({topic: {"0": 20, "1": 5, "2": -1}})
    rows = (
        read(spark, {**mine, "startingOffsets": some, "endingOffsets": until}).select("partition", "offset").collect()
    )
    assert sorted(map(tuple, rows)) == [(0, o) for o in range(10, 20)] + [(1, o) for o in range(5)]
    at = START_MS + 1500 * 1000
    timed = read(spark, {**mine, "startingTimestamp": str(at)})
    assert timed.count() == 500
    both = read(spark, {**mine, "startingTimestamp": str(at), "endingTimestamp": str(at + 100_000)})
    assert both.count() == 100
    each = json.dumps({topic: {str(p): at for p in range(3)}})
    assert read(spark, {**mine, "startingOffsetsByTimestamp": each}).count() == 500

    # One partition, a pattern.
    one = read(spark, {**topics.options(), "assign": json.dumps({topic: [1]})})
    assert one.count() == ends[1]
    assert read(spark, {**topics.options(), "subscribePattern": topic[:-1] + "[0-9]"}).count() == 2000

    # Filters on partition, offset and time cut the ranges before anything is fetched.
    cut = read(spark, {**mine, "minPartitions": "1"}).where("partition = 1 and offset >= 3 and offset < 8")
    assert sorted(row.offset for row in cut.collect()) == [3, 4, 5, 6, 7]
    assert cut.rdd.getNumPartitions() == 1
    late = plain.where(f"timestamp >= timestamp_millis({START_MS + 1_999_000})")
    assert late.count() == 1


def test_bad_reads_are_one_clear_error(spark, topics):
    topic = topics.new("bad", 1)
    topics.send(topic, [(b"k", b"v")] * 5)
    cases = {
        "topic 'no-such-topic' does not exist": topics.options(subscribe="no-such-topic"),
        "offsets 3 to 9 were asked for, 0 to 5 are there": topics.options(
            subscribe=topic,
            startingOffsets=json.dumps({topic: {"0": 3}}),
            endingOffsets=json.dumps({topic: {"0": 9}}),
        ),
        "must name each partition": topics.options(
            subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1, "7": 1}})
        ),
        "no record at or after that time": topics.options(subscribe=topic, startingTimestamp="99999999999999"),
        "no broker of 127.0.0.1:9 answers": {
            "kafka.bootstrap.servers": "127.0.0.1:9",
            "kafka.default.api.timeout.ms": "1500",
            "subscribe": topic,
        },
        "cannot be read": {"path": "/no/such/place", "subscribe": topic},
    }
    for words, options in cases.items():
        with pytest.raises(Exception, match=words):
            read(spark, options).count()
    lenient = topics.options(subscribe=topic, endingOffsets=json.dumps({topic: {"0": 9}}), failOnDataLoss="false")
    assert read(spark, lenient).count() == 5


def test_transactions_are_seen_as_the_isolation_level_says(spark, topics, server):
    topic = topics.new("txn", 1)
    producer = Producer({"bootstrap.servers": topics.servers, "transactional.id": topic, "log_level": 3})
    producer.init_transactions(30)
    for number, commit in enumerate([True, False, True, False, True]):
        producer.begin_transaction()
        for n in range(20):
            producer.produce(topic, f"{number}-{n}".encode())
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    await_decided(topics.servers, topic)
    mine = topics.options(subscribe=topic)
    committed = {f"{number}-{n}" for number in (0, 2, 4) for n in range(20)}
    text = "cast(value as string) as v"
    for where in (mine, {"path": str(server.data_dir), "subscribe": topic}):
        found = read(spark, {**where, "kafka.isolation.level": "read_committed"}).selectExpr(text).collect()
        assert sorted(row.v for row in found) == sorted(committed)
        assert read(spark, where).count() == 100
    assert {row[1].decode() for row in by_client(topics.servers, topic, 1, "read_committed")} == committed


def test_streaming_reads(spark, topics, tmp_path):
    topic = topics.new("stream", 2)
    topics.send(topic, [(f"k{n}".encode(), f"v{n}".encode()) for n in range(900)])
    seen: list[tuple[int, set[str]]] = []

    def run(**more):
        stream = spark.readStream.format("ottla").options(**topics.options(subscribe=topic, **more)).load()
        query = (
            stream.selectExpr("cast(value as string) as v")
            .writeStream.foreachBatch(lambda rows, number: seen.append((number, {row.v for row in rows.collect()})))
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return query

    query = run(startingOffsets="earliest", maxOffsetsPerTrigger="400")
    assert all(398 <= len(rows) <= 400 for _, rows in seen[:2])  # shares of 400 by what waits in each partition
    assert len(seen) == 3
    assert sum(len(rows) for _, rows in seen) == 900
    assert query.lastProgress["sources"][0]["numInputRows"] == len(seen[-1][1])
    topics.send(topic, [(f"k{n}".encode(), f"v{n}".encode()) for n in range(900, 1000)])
    run(startingOffsets="earliest")
    assert seen[-1][0] == 3
    assert set.union(*(rows for _, rows in seen)) == {f"v{n}" for n in range(1000)}
    assert sum(len(rows) for _, rows in seen) == 1000


def test_a_stream_waits_for_its_least_batch(spark, topics, tmp_path):
    topic = topics.new("least", 1)
    topics.send(topic, [(b"k", b"first")] * 3)
    seen: list[int] = []
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1")  # it tells of triggers that found nothing
    stream = spark.readStream.format("ottla").options(
        **topics.options(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    )
    query = (
        stream.load()
        .writeStream.foreachBatch(lambda rows, _: seen.append(rows.count()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )

    def wait_until(done) -> None:
        deadline = time.monotonic() + 200
        while not done():
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    try:
        wait_until(lambda: seen == [3])
        topics.send(topic, [(b"k", b"few")] * 20)
        sent = datetime.now(UTC).isoformat()[:23]
        wait_until(
            lambda: (query.lastProgress or {"timestamp": ""})["timestamp"] > sent
        )  # a trigger that began after them came by
        topics.send(topic, [(b"k", b"more")] * 40)
        wait_until(lambda: len(seen) > 1)
        assert seen == [3, 60]
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
