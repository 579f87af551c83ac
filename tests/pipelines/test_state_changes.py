"""A changed pipeline and the state of its checkpoint: what `validate` says before a start, and `repartition`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.model.user_error import UserError
from ottla.pipelines import Pipeline, changes_of, join, topic
from ottla.pipelines.analysis import problems
from ottla.pipelines.build import RunSettings
from ottla.pipelines.checkpoints import Checkpoint, LocalFiles
from ottla.pipelines.repartition import repartition
from ottla.pipelines.run import PipelineRun, StepFailed
from ottla.pipelines.stored_state import stored_state
from tests.pipelines.conftest import Topics

pytestmark = pytest.mark.timeout(600)
NOWHERE = RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints="")
CLICK = "user string, page string, ms long, bytes long"


def by_page(clicks):
    return clicks.groupBy("page").count()


def by_time(clicks):
    return clicks.groupBy("ms").count().withColumnRenamed("ms", "page")


class Shop:
    """Clicks counted by page and joined with users; 40 clicks a round."""

    def __init__(self, spark, topics, folder):
        self.spark, self.topics, self.folder = spark, topics, folder
        self.clicks, self.users, self.counts, self.seen = (
            topics.new(name, 1) for name in ("clicks", "users", "counts", "seen")
        )
        self.checkpoint = Checkpoint(LocalFiles(), f"{folder}/shop")

    def pipeline(self, counts=by_page, seen=None):
        made = Pipeline("shop")
        clicks = topic(self.clicks, value="json", schema=CLICK)
        users = changes_of(topic(self.users, value="json", schema="city string"))

        @made.step(reads={"clicks": clicks}, writes=topic(self.counts, value="json", key="page"), output_mode="update")
        def count(clicks):
            return counts(clicks)

        @made.step(reads={"clicks": clicks, "users": users}, writes=topic(self.seen, value="json"))
        def joined(clicks, users):
            return (seen or (lambda rows, table: join(rows, table, on="user").select("page", "city")))(clicks, users)

        return made

    def run(self, **changed):
        self.topics.send(self.users, [(b"u%d" % n, b'{"city": "c%d"}' % n) for n in range(4)])
        rows = [{"user": f"u{n % 4}", "page": f"p{n % 10}", "ms": n} for n in range(40)]
        self.topics.send(self.clicks, [(None, json.dumps(row).encode()) for row in rows])
        settings = RunSettings(bootstrap_servers=self.topics.servers, checkpoints=str(self.folder))
        run = PipelineRun(self.spark, self.pipeline(**changed), settings)
        run.once()
        return run

    def validated(self, *steps, **changed):
        """Of all steps, or of those named."""
        kept = []
        pipeline = self.pipeline(**changed)
        pipeline.steps = [step for step in pipeline.steps if not steps or step.name in steps]
        return problems(self.spark, pipeline, NOWHERE, self.checkpoint, kept), kept


@pytest.fixture(scope="module")
def shop(spark, ottla_server, tmp_path_factory):
    made = Shop(spark, Topics(ottla_server), tmp_path_factory.mktemp("state"))
    made.run()
    return made


def test_a_pipeline_as_it_was_goes_on(shop):
    reasons, kept = shop.validated()
    assert reasons == []
    assert kept == [
        f"{step} goes on with its checkpoint after batch 0; its state is in 2 partitions"
        for step in ("count", "joined")
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (by_time, "has the keys page string, the step has ms long"),
        (
            lambda rows: rows.groupBy("page").agg({"ms": "max", "page": "count"}),
            "has the values count long, the step has max long, count long",
        ),
        (
            lambda rows: rows.groupBy("page").sum("ms"),
            "has the values count by page, the step would keep the values sum by page there, and Spark would go on",
        ),
        (
            lambda rows: rows.groupBy("user").count().withColumnRenamed("user", "page"),
            "has the values count by page, the step would keep the values count by user there",
        ),
        (
            lambda rows: rows.dropDuplicates(["ms"]).groupBy("page").count(),
            "the checkpoint has the state of an aggregate, the step has an aggregate and dropDuplicates",
        ),
        (lambda rows: rows.select("page"), "the checkpoint has the state of an aggregate, the step has nothing"),
    ],
)
def test_a_change_that_the_checkpoint_does_not_survive(shop, changed, words):
    (reason,), kept = shop.validated("count", counts=changed)
    assert reason.startswith("step count: ")
    assert words in reason
    assert reason.endswith("`ottla pipeline backfill` and go over to them with `ottla pipeline switch`")
    assert kept == []


@pytest.fixture(scope="module")
def sums(spark, ottla_server, tmp_path_factory):
    """A checkpoint with the sum of one column by page."""
    made = Shop(spark, Topics(ottla_server), tmp_path_factory.mktemp("sums"))
    made.run(counts=sum_of("ms"))
    return made


def sum_of(column):
    return lambda rows: rows.groupBy("page").agg(F.sum(column).alias("total"))


def counted(rows):
    return rows.groupBy("page").agg(F.count("ms").alias("total"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            sum_of("bytes"),
            r"made by an aggregate \(sum\(ms\) by page\), the step has an aggregate \(sum\(bytes\) by page\)",
        ),
        (counted, "has the values sum by page, the step would keep the values count by page there"),
    ],
)
def test_run_and_validate_refuse_another_meaning_of_the_state(sums, changed, words):
    """The types are equal, and a sum's state column has one name for every column: Spark would go on."""
    with pytest.raises(StepFailed, match=words) as refused:
        sums.run(counts=changed)
    assert "`ottla pipeline backfill` and go over to them with `ottla pipeline switch`" in refused.value.reason
    (reason,), _ = sums.validated("count", counts=changed)
    assert reason.startswith("step count: ")


def test_a_checkpoint_without_a_note_is_compared_by_its_columns_and_noted(sums):
    note = Path(sums.checkpoint.folder, "ottla.state.json")
    before = note.read_text()
    note.unlink()
    with pytest.raises(StepFailed, match="has the values sum by page, the step would keep the values count by page"):
        sums.run(counts=counted)
    assert not note.exists()
    sums.run(counts=lambda rows: sum_of("ms")(rows.where("ms >= 0")).withColumnRenamed("total", "all_ms"))
    assert json.loads(note.read_text()) == json.loads(before)
    assert sums.checkpoint.queries() == ["count", "joined"]


def test_changes_that_keep_the_checkpoint(shop):
    """Columns behind the state, filters before it, and columns of a joined table: its rows are JSON."""

    def counts(rows):
        return rows.where("ms >= 0").groupBy("page").count().withColumnRenamed("count", "clicks")

    def seen(rows, table):
        return join(rows, table.withColumnRenamed("city", "town"), on="user", how="left").select("user", "town")

    reasons, kept = shop.validated(counts=counts, seen=seen)
    assert (reasons, len(kept)) == ([], 2)


def test_other_inputs(shop):
    (reason,), _ = shop.validated("joined", seen=lambda rows, _table: rows.select("page"))
    assert "the checkpoint has 2 streaming inputs, the step has 1" in reason
    (reason,), _ = shop.validated("joined", seen=lambda rows, table: table.select("city").union(rows.select("page")))
    assert f"streaming input 1 of the checkpoint is {shop.clicks}, that of the step is {shop.users}" in reason


def test_validation_leaves_the_checkpoint_as_it_is(shop):
    before = sorted((path, path.stat().st_mtime_ns) for path in shop.folder.rglob("*"))
    shop.validated(counts=by_time)
    assert sorted((path, path.stat().st_mtime_ns) for path in shop.folder.rglob("*")) == before


def test_a_changed_aggregate_fails_in_the_same_words(shop, tmp_path):
    shutil.copytree(shop.folder / "shop", tmp_path / "shop")
    moved = Shop.__new__(Shop)
    moved.__dict__.update(shop.__dict__, folder=tmp_path)
    with pytest.raises(
        StepFailed, match=r"step count: the state of the checkpoint has the keys page string, the step has ms"
    ):
        moved.run(counts=by_time)


def test_state_partitions_change_between_two_runs(spark, ottla_server, tmp_path, committed_of):
    shop = Shop(spark, Topics(ottla_server), tmp_path)
    client = {"bootstrap.servers": shop.topics.servers}
    shop.run()
    commits = tmp_path / "shop" / "count" / "commits"
    commits.joinpath("0").rename(tmp_path / "0")
    with pytest.raises(UserError, match=r"batch 0 of count is not finished: finish it with `ottla pipeline run"):
        repartition(spark, shop.checkpoint, client, 3)
    assert stored_state(shop.checkpoint, "joined").partitions == 2, "the check comes before the first change"
    (tmp_path / "0").rename(commits / "0")
    assert repartition(spark, shop.checkpoint, client, 3) == [("count", 2), ("joined", 2)]
    assert repartition(spark, shop.checkpoint, client, 3) == []
    run = shop.run()
    assert [query.progress["stateOperators"][0]["numShufflePartitions"] for query in run.running] == [3, 3]
    newest = {row["key"]: json.loads(row["value"])["count"] for row in committed_of(shop.counts)}
    assert newest == {b"p%d" % page: 8 for page in range(10)}
    assert len(committed_of(shop.seen)) == 80
    assert shop.validated()[1][0].endswith("after batch 2; its state is in 3 partitions")


@pytest.fixture
def committed_of(ottla_server):
    from ottla.tables.query import topic_table
    from tests.support.committed import await_decided

    def read(name):
        await_decided(ottla_server.bootstrap_servers, name)
        return topic_table({"bootstrap.servers": ottla_server.bootstrap_servers}, name).to_pylist()

    return read


def test_a_pipeline_without_state_has_nothing_to_repartition(spark, ottla_server, tmp_path):
    topics = Topics(ottla_server)
    source, target = topics.new("plain", 1), topics.new("plain-out", 1)
    made = Pipeline("plain")

    @made.step(reads={"rows": topic(source)}, writes=topic(target))
    def same(rows):
        return rows.select("value")

    client = {"bootstrap.servers": topics.servers}
    with pytest.raises(UserError, match="there is no checkpoint"):
        repartition(spark, Checkpoint(LocalFiles(), f"{tmp_path}/plain"), client, 3)
    topics.send(source, [(None, b"x")])
    PipelineRun(spark, made, RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))).once()
    with pytest.raises(UserError, match=r"no query of .*plain has state"):
        repartition(spark, Checkpoint(LocalFiles(), f"{tmp_path}/plain"), client, 3)
