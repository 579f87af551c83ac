"""The vocabulary in small: each step's function on plain DataFrames beside pandas; a backfill and a switch of two versions.

One Spark session runs all of it. test_vocabulary.py runs the same steps as streaming queries with late data (`make soak`).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, changes_of, join, joins, supervisor, topic
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import load_pipelines
from ottla.pipelines.run import PipelineRun, StepFailed, backfilled
from ottla.pipelines.status import pipeline_status
from ottla.pipelines.switch import switch
from tests.pipelines.test_vocabulary import FILE, made_up

pytestmark = pytest.mark.timeout(600)
USERS = [("ada", "ada", "at", False), ("bob", None, None, True), ("eve", "eve", "xx", False)]


@pytest.fixture(scope="module")
def steps(spark):
    (vocabulary,) = load_pipelines(str(FILE))
    return {step.name: step.function for step in vocabulary.steps}


@pytest.fixture(scope="module")
def inputs(spark):
    """Two topics' events as a step gets them, and the same in pandas."""
    rows = made_up(120, 1, 0), made_up(90, 2, 10_000)
    schema = "id long, user string, kind string, amount long, words string, at string"
    frames = [
        spark.createDataFrame(some, schema).withColumns(
            {"at": F.col("at").cast("timestamp"), "_timestamp": F.timestamp_seconds(F.lit(100)), "_offset": F.col("id")}
        )
        for some in rows
    ]
    return frames, [
        pd.DataFrame(some).assign(at=lambda one: pd.to_datetime(one["at"], utc=True, format="ISO8601")) for some in rows
    ]


def rows_of(frame):
    return Counter(tuple(row) for row in frame.collect())


def test_stateless_words(steps, inputs):
    (events, more), (first, second) = inputs
    branches = steps["branch"](events)
    big = first[first.amount >= 50]
    assert rows_of(branches["large"]) == Counter(zip(big.id, big.user, big.amount * 2, strict=True))
    words = Counter(word for text in first.words for word in text.split())
    assert Counter(row.word for row in branches["words"].collect()) == words
    both = pd.concat([first, second])
    assert rows_of(steps["merge"](events, more)) == Counter(
        zip(both.id, both.user, both.kind, both.amount, strict=True)
    )


def test_aggregates_and_windows(steps, inputs):
    (events, _), (first, _) = inputs
    totals = first.groupby("user").amount.agg(["count", "sum", "max"])
    assert rows_of(steps["totals"](events)) == Counter(totals.itertuples(name=None))
    highest = first.groupby("user").amount.max()
    assert rows_of(steps["highest"](events)) == Counter(highest.items())
    minutes = first.groupby([first["at"].dt.floor("min"), "kind"]).size()
    tumbling = {(pd.Timestamp(row.start, tz="UTC"), row.kind): row.n for row in steps["tumbling"](events).collect()}
    assert tumbling == dict(minutes.items())
    hops = pd.concat([first.assign(start=first["at"].dt.floor("min") - pd.Timedelta(minutes=n)) for n in (0, 1)])
    sums = hops.groupby(hops.start.dt.strftime("%Y-%m-%d %H:%M")).amount.sum()
    assert rows_of(steps["hopping"](events)) == Counter(sums.items())
    gaps = first.sort_values(["user", "at"])
    new = (gaps.groupby("user")["at"].diff() >= pd.Timedelta(seconds=30)).groupby(gaps["user"]).cumsum()
    sessions = gaps.groupby(["user", new]).agg(begin=("at", "min"), n=("at", "size")).reset_index("user")
    found = Counter((row.user, pd.Timestamp(row.begin, tz="UTC"), row.n) for row in steps["sessions"](events).collect())
    assert found == Counter(zip(sessions.user, sessions.begin, sessions.n, strict=True))


def test_joins(spark, steps, inputs):
    (events, more), (first, second) = inputs
    both = first.merge(second, on=["user", "amount"])
    near = both[(both.at_y >= both.at_x) & (both.at_y <= both.at_x + pd.Timedelta(minutes=1))]
    assert rows_of(steps["pairs"](events, more)) == Counter(zip(near.user, near.id_x, near.id_y, strict=True))
    users = spark.createDataFrame(USERS, "_key string, name string, country string, _deleted boolean")
    users = users.withColumn("_timestamp", F.timestamp_seconds(F.lit(10)))
    countries = spark.createDataFrame([("at", "at", "Vienna")], "_key string, country string, capital string")
    countries = countries.withColumn("_timestamp", F.timestamp_seconds(F.lit(5)))
    country = {"ada": "at", "eve": "xx"}
    expected = Counter((row.id, row.user, country.get(row.user)) for row in first.itertuples())
    assert rows_of(steps["placed"](events, users)) == expected
    located = steps["located"](users, countries).select("_key", "name", "country", "capital", "_deleted")
    assert rows_of(located) == {("ada", "ada", "at", "Vienna", False): 1, ("eve", "eve", "xx", None, False): 1}
    enriched = steps["enriched"](events, users.where("not _deleted"), countries).select(
        "id", "user", "country", "capital"
    )
    capital = {"ada": "Vienna"}
    assert rows_of(enriched) == Counter((*row, capital.get(row[1])) for row in expected.elements())


class Version(threading.Thread):
    """A version of a pipeline that runs as `ottla pipeline start` runs it, in this process: its status is in a file."""

    def __init__(self, spark, pipeline: Pipeline, settings: RunSettings, state: str) -> None:
        super().__init__(daemon=True)
        self._run, self._state = PipelineRun(spark, pipeline, settings), state
        self.name = pipeline.name
        self.failure: Exception | None = None

    def start(self) -> None:
        definition = supervisor.paths(self._state, self.name)[0]
        supervisor.write_json(definition, {"name": self.name, "pid": os.getpid(), "started": time.time()})
        self._write("starting")
        super().start()

    def run(self) -> None:
        try:
            self._run.continuously(lambda _: self._write("running"), poll_s=0.1)
        except Exception as failure:  # noqa: BLE001 - the thread's last words
            self.failure = failure
        self._write("stopped" if self.failure is None else "failed")

    def end(self) -> None:
        self._run.stop()
        self.join(120)
        assert not self.is_alive()
        assert self.failure is None

    def _write(self, state: str) -> None:
        facts = pipeline_status(self._run, state, str(self.failure or ""))
        supervisor.write_json(supervisor.paths(self._state, self.name)[1], facts)


@pytest.mark.parametrize("server", ["ottla"], indirect=True)
def test_a_backfill_then_the_switch(spark, topics, committed, tmp_path: Path, monkeypatch):
    """The new version reads history into new outputs and goes on at the backfill's checkpoint, then the old one stops."""
    names = {stem: topics.new(stem, 2) for stem in ("clicks", "users", "seen")}

    def version(pages: str) -> Pipeline:
        pipeline = Pipeline("clicks")

        @pipeline.step(
            reads={
                "clicks": topic(names["clicks"], value="json", schema="user string, page string"),
                "users": changes_of(topic(names["users"], value="json", schema="country string")),
            },
            writes=topic(names["seen"], value="json", key="user", partitions=2),
        )
        def seen(clicks, users):
            unique = clicks.where(pages).withWatermark("_timestamp", "1 hour").dropDuplicatesWithinWatermark(["page"])
            return join(unique, users, on="user").select("user", "page", "country")

        return pipeline

    def user(country: str) -> None:
        topics.send(names["users"], [(b"ada", json.dumps({"country": country}).encode())])

    def click(page: str) -> None:
        topics.send(names["clicks"], [(None, json.dumps({"user": "ada", "page": page}).encode())] * 2)

    def seen_pages(name: str) -> list[tuple[str, str]]:
        return sorted((row["page"], row["country"]) for row in (json.loads(one["value"]) for one in committed(name)))

    def await_page(name: str, page: str) -> None:
        deadline = time.monotonic() + 240
        while page not in dict(seen_pages(name)):
            assert time.monotonic() < deadline, (seen_pages(name), old.failure, new.failure)
            time.sleep(0.1)

    state = str(tmp_path)
    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=f"{state}/checkpoints")
    user("c0")
    click("p0")
    next_version = backfilled(version("true"), "-v2")
    PipelineRun(spark, next_version, settings).once()
    user("c1")
    click("p1")
    old, new = (Version(spark, each, settings, state) for each in (version("page <> 'p0'"), next_version))
    monkeypatch.setattr(supervisor, "stop", lambda _state, name: name == old.name and (old.end() or True))
    old.start()
    try:
        await_page(names["seen"], "p1")
        told: list[str] = []
        switch(state, "clicks", "clicks-v2", new.start, patience_s=240, report=told.append)
        assert told[-1] == "clicks-v2: has caught up; clicks is stopped"
        click("p2")
        await_page(f"{names['seen']}-v2", "p2")
    finally:
        for running in (old, new):
            if running.is_alive():
                running.end()
    assert seen_pages(f"{names['seen']}-v2") == [("p0", "c0"), ("p1", "c1"), ("p2", "c1")], (
        "nothing twice, nothing lost"
    )
    assert seen_pages(names["seen"]) == [("p1", "c1")], "the old version has ended"


@pytest.mark.parametrize("server", ["ottla"], indirect=True)
def test_state_of_an_earlier_version_is_refused_by_name(spark, topics, tmp_path: Path, monkeypatch):
    """Before pages, each key had a value of its own. Without a check the join would start with an empty table."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class ValuesByKey(StatefulProcessor):
        def init(self, handle):
            self._table = handle.getValueState("table", "payload string")

        def handleInputRows(self, key, rows, timerValues):  # noqa: N803 - Spark's name
            self._table.update(("{}",))
            return iter([])

        def close(self):
            pass

    names = {stem: topics.new(stem, 1) for stem in ("clicks", "users", "seen")}
    pipeline = Pipeline("clicks")

    @pipeline.step(
        reads={
            "clicks": topic(names["clicks"], value="json", schema="user string, page string"),
            "users": changes_of(topic(names["users"], value="json", schema="country string")),
        },
        writes=topic(names["seen"], value="json", key="user", partitions=1),
    )
    def seen(clicks, users):
        return join(clicks, users, on="user").select("user", "page", "country")

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))
    topics.send(names["users"], [(b"ada", b'{"country": "at"}')])
    with monkeypatch.context() as earlier:
        earlier.setattr(
            joins,
            "_with_state",
            lambda rows, _, result: rows.groupBy("key").transformWithState(ValuesByKey(), result, "Append", "None"),
        )
        PipelineRun(spark, pipeline, settings).once()
    topics.send(names["clicks"], [(None, b'{"user": "ada", "page": "p"}')])
    with pytest.raises(
        StepFailed, match="has another form, of an earlier version of Ottla or of the step: run that version"
    ):
        PipelineRun(spark, pipeline, settings).once()
