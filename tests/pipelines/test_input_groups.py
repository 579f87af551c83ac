"""Queries as consumer groups: where they stand in their inputs, for every Kafka tool; and the bound of a batch."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import KafkaError
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.client.groups import committed_offsets
from ottla.console.cluster.collect import collect
from ottla.pipelines import Pipeline, build, topic
from ottla.pipelines.build import MAX_OFFSETS_PER_TRIGGER, RunSettings
from ottla.pipelines.input_groups import InputGroups, positions_of
from ottla.pipelines.run import PipelineRun, StepFailed
from tests.upgrade import observations as observe

pytestmark = pytest.mark.timeout(600)


def test_a_query_is_a_group_with_its_positions(spark, topics, tmp_path, monkeypatch):
    """Over all of history a batch has at most the default number of records; 0 removes that bound."""
    source, target = topics.new("in", 2), topics.new("out", 1)
    name = f"p{target}"
    pipeline = Pipeline(name)

    @pipeline.step(reads={"rows": topic(source, value="text")}, writes=topic(target, value="text"))
    def copy(rows):
        return rows.select("value")

    monkeypatch.setattr(build, "MAX_OFFSETS_PER_TRIGGER", 7)

    def run(more, **settings):
        topics.send(source, [(None, b"x")] * more)
        chosen = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path), **settings)
        PipelineRun(spark, pipeline, chosen).once()
        with observe.connected(topics.servers) as cluster:
            committed = committed_offsets(cluster, f"{name}.copy")
            ends = {where: end for where, end in collect(cluster).ends.items() if where[0] == source}
        assert committed == ends
        assert sum(committed.values()) == sent + more
        return len(list((tmp_path / name / "copy" / "commits").glob("[0-9]*")))

    sent = 0
    assert run(20) >= 3
    batches, sent = len(list((tmp_path / name / "copy" / "commits").glob("[0-9]*"))), 20
    assert run(20, max_offsets_per_trigger=0) == batches + 1


@pytest.mark.parametrize("mode", ["append", "update"])
def test_options_of_an_output_topic_reach_its_writer(spark, topics, tmp_path, mode):
    source, target = topics.new("in", 1), topics.new("out", 1)
    topics.send(source, [(b"k", b"x")])
    pipeline = Pipeline(f"p{target}")
    out = topic(target, value="json", options={"onMarkersLost": "nonsense"})

    @pipeline.step(reads={"rows": topic(source, value="text")}, writes=out, output_mode=mode)
    def copy(rows):
        return rows.select("value") if mode == "append" else rows.groupBy("value").agg(F.count("*").alias("n"))

    settings = RunSettings(bootstrap_servers=topics.servers, checkpoints=str(tmp_path))
    with pytest.raises(StepFailed, match="onMarkersLost is fail or write, not 'nonsense'"):
        PipelineRun(spark, pipeline, settings).once()


def test_the_default_bound_gives_way():
    settings = RunSettings(bootstrap_servers="", checkpoints="")
    assert build._most_offsets(topic("t"), settings) == MAX_OFFSETS_PER_TRIGGER
    assert build._most_offsets(topic("t", options={"minOffsetsPerTrigger": "9000000"}), settings) == 0
    assert (
        build._most_offsets(topic("t"), RunSettings(bootstrap_servers="", checkpoints="", max_offsets_per_trigger=0))
        == 0
    )


def test_positions_of_progress():
    ends = {"a": {"0": 5, "1": -1}, "@ottla": {"version": 1, "topics": {}}}
    sources = [{"endOffset": json.dumps(ends)}, {"endOffset": {"a": {"0": 3}, "b": {"2": 7}}}, {"endOffset": "12"},
               {"endOffset": None}, {"endOffset": "no JSON"}]  # fmt: skip
    assert positions_of({"sources": sources}) == {("a", 0): 3, ("b", 2): 7}
    assert positions_of({}) == {}


class Answer:
    def __init__(self, problem=None):
        self.problem, self.is_done = problem, True

    def done(self):
        return self.is_done

    def result(self, _timeout):
        if self.problem is not None:
            raise self.problem
        return SimpleNamespace(topic_partitions=[])


def test_positions_are_sent_when_they_change_and_every_hour(monkeypatch):
    now, sent, answers = [0.0], [], []
    groups = InputGroups({}, clock=lambda: now[0])

    def send(_self, group, positions):
        sent.append((group, dict(positions)))
        answers.append(Answer())
        return answers[-1]

    monkeypatch.setattr(InputGroups, "_sent", send)

    def commit(offset):
        groups.commit("q", {"sources": [{"endOffset": {"a": {"0": offset}}}]})
        return len(sent)

    assert [commit(1), commit(1), commit(2)] == [1, 1, 2]
    answers[-1].is_done = False
    assert commit(3) == 2  # the call before is on its way: this loop does not wait
    answers[-1].is_done = True
    assert commit(3) == 3
    now[0] = 3599
    assert commit(3) == 3
    now[0] = 3600
    assert commit(3) == 4
    answers[-1].problem = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert commit(3) == 5  # refused: sent again, and the pipeline goes on
    groups.close()
