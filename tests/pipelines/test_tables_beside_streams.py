"""Joins with tables beside a real Kafka Streams application (TableJoins.java) on the same topics: every update is equal.

Kafka Streams also sends deletions of rows that were never there; these are left out. A join by a foreign key answers
through topics in between, so there the newest row of each key is compared.
"""

from __future__ import annotations

import json
import random
from functools import partial

import pytest

from ottla.pipelines import Pipeline, changes_of, join, join_tables, topic
from ottla.pipelines.build import RunSettings
from ottla.pipelines.run import PipelineRun
from tests.pipelines import table_model
from tests.support.streams_application import StreamsInstance, await_that

pytestmark = [
    pytest.mark.interop,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("requires_apache_kafka"),
]
START_MS = 1_790_000_000_000
OUTPUTS = ("inner", "left-join", "outer", "foreign-inner", "foreign-left", "stream-inner", "stream-left")
END = "end"
TEXT = "split(value, '@')[0]"


def pipeline() -> Pipeline:
    joins = Pipeline("joins")
    left, right = (changes_of(topic(name, value="text")) for name in ("left", "right"))

    def sides(left, right):
        foreign = "nullif(split(value, '@')[1], '') as refers_to"
        return (
            left.selectExpr("_key", "_deleted", "_timestamp", "_partition", "_offset", f"{TEXT} as l", foreign),
            right.selectExpr("_key", "_deleted", "_timestamp", "_partition", "_offset", f"{TEXT} as r"),
        )

    def tables(name, how, foreign_key=None):
        def function(left, right):
            return join_tables(*sides(left, right), how=how, foreign_key=foreign_key)

        function.__name__ = name
        joins.step(reads={"left": left, "right": right}, writes=output(name))(function)

    def streams(name, how):
        def function(stream, right):
            rows = stream.selectExpr("*", f"{TEXT} as l", "_key as id").drop("value")
            return join(rows, right.selectExpr("* except (value)", f"{TEXT} as r"), on="id", how=how)

        function.__name__ = name
        joins.step(reads={"stream": topic("stream", value="text"), "right": right}, writes=output(name))(function)

    def output(name):
        return topic(f"spark-{name}", value="json", key="_key", partitions=1)

    for name, how in (("inner", "inner"), ("left-join", "left"), ("outer", "outer")):
        tables(name, how)
    for how in ("inner", "left"):
        tables(f"foreign-{how}", how, "refers_to")
        streams(f"stream-{how}", how)
    return joins


@pytest.mark.parametrize("server", ["ottla"], indirect=True)
def test_every_update_equals_that_of_kafka_streams(spark, topics, committed, tmp_path):
    for name in ("left", "right", "stream", *OUTPUTS):
        topics.make(name, 1, retention_ms="-1")
    draw = random.Random(20)
    history = table_model.history(draw, 250, deletes=(0.25, 0.25), keys=6)
    clicks = [(at, f"k{draw.randrange(7)}", f"s{at}@") for at in range(0, history[-1].at, 3)]
    last = history[-1].at + 1000
    for side, name in enumerate(("left", "right")):
        rows = [
            (one.at * 10, one.key, one.value and f"{one.value}@{one.refers_to or ''}")
            for one in history
            if one.side == side
        ]
        send(topics, name, [*rows, (last * 10 + side, END, f"{END}@{END}")])
    send(topics, "stream", [*((at * 10 + 5, key, value) for at, key, value in clicks), (last * 10 + 5, END, f"{END}@")])
    application = StreamsInstance(
        topics.servers, "table-joins", "a", tmp_path, program="TableJoins", statestore_cache_max_bytes="0"
    )
    with application:
        await_that(partial(complete, committed, application), "all outputs of Kafka Streams have their last row", 300)
        application.close()
    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path / "checkpoints"))
    PipelineRun(spark, pipeline(), settings).once()
    for name in OUTPUTS:
        java = java_updates(committed(name, undecided=True))
        ours = our_updates(committed(f"spark-{name}"))
        assert END in java
        if name.startswith("foreign"):
            assert table_model.newest(ours) == table_model.newest(java), name
        else:
            assert ours == java, name


def send(topics, name, rows):
    topics.send(name, [(key.encode(), value and value.encode(), START_MS + at) for at, key, value in rows])


def complete(committed, application) -> bool:
    application.says("state RUNNING")
    return all(any(row["key"] == END.encode() for row in committed(name, undecided=True)) for name in OUTPUTS)


def java_updates(records) -> table_model.Updates:
    rows = (
        (one["key"].decode(), one["value"] and tuple(one["value"].decode().split("/"))) for one in in_order(records)
    )
    return _without_needless((key, value and tuple(text or None for text in value)) for key, value in rows)


def our_updates(records) -> table_model.Updates:
    rows = ((one["key"].decode(), one["value"] and json.loads(one["value"])) for one in in_order(records))
    return _without_needless((key, value and (value.get("l"), value.get("r"))) for key, value in rows)


def in_order(records):
    return sorted(records, key=lambda record: record["offset"])


def _without_needless(rows) -> table_model.Updates:
    updates: table_model.Updates = {}
    for key, value in rows:
        if value is not None or updates.get(key, [None])[-1] is not None:
            updates.setdefault(key, []).append(value)
    return updates
