"""The vocabulary in small: each step's function on plain DataFrames beside pandas, and a backfill that goes on as a query.

test_vocabulary.py runs the same steps as streaming queries with late data (`make soak`).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, changes_of, join, topic
from ottla.pipelines.backfills import backfilled
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import load_pipelines
from ottla.pipelines.run import PipelineRun
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


@pytest.mark.parametrize("server", ["ottla"], indirect=True)
def test_a_backfill_and_what_comes_after_it(spark, topics, committed, tmp_path: Path):
    """The new version reads history into new outputs and goes on at the backfill's checkpoint: state and offsets."""
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
            return join(clicks.where(pages), users, on="user").select("user", "page", "country")

        return pipeline

    def send(number: int) -> None:
        topics.send(names["users"], [(b"ada", json.dumps({"country": f"c{number}"}).encode())])
        click = {"user": "ada", "page": f"p{number}"}
        topics.send(names["clicks"], [(None, json.dumps(click).encode())])

    def pages(name: str) -> list[tuple[str, str]]:
        return sorted((row["page"], row["country"]) for row in (json.loads(one["value"]) for one in committed(name)))

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))
    send(0)
    PipelineRun(spark, version("page <> 'p0'"), settings).once()
    send(1)
    new = backfilled(version("true"), "-v2")
    PipelineRun(spark, new, settings).once()
    topics.send(names["clicks"], [(None, b'{"user": "ada", "page": "p2"}')])
    PipelineRun(spark, new, settings).once()
    assert pages(f"{names['seen']}-v2") == [("p0", "c0"), ("p1", "c1"), ("p2", "c1")]
    assert pages(names["seen"]) == [], "the old version ran before the second click"
