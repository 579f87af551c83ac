"""Queries as consumer groups: where they stand in their inputs, for every Kafka tool; and the bound of a batch."""

from __future__ import annotations

import json
from concurrent.futures import Future

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.client.cluster import Cluster
from ottla.client.groups import committed_offsets
from ottla.client.settings import client_settings
from ottla.console.cluster.collect import collect
from ottla.model.errors import ErrorCode, KafkaError
from ottla.pipelines import Pipeline, build, input_groups, topic
from ottla.pipelines.build import MAX_OFFSETS_PER_TRIGGER, RunSettings
from ottla.pipelines.input_groups import InputGroups, positions_of
from ottla.pipelines.run import PipelineRun, StepFailed
from ottla.testing import Broker
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


def test_positions_are_sent_when_they_change_and_every_hour():
    now, sent, answers = [0.0], [], []
    groups = InputGroups({}, clock=lambda: now[0])

    class Sender:
        """Calls nothing: the answers come from the test."""

        def submit(self, _call, *sending):
            sent.extend([sending] if sending else [])
            answers.append(Future())
            return answers[-1]

        def shutdown(self, *, wait):
            assert not wait

    groups._sender = Sender()

    def commit(offset):
        groups.commit("q", {"sources": [{"endOffset": {"a": {"0": offset}}}]})
        return len(sent)

    assert commit(1) == 1
    answers[-1].set_result(None)
    assert [commit(1), commit(2)] == [1, 2]
    assert commit(3) == 2  # the call before is on its way: this loop does not wait
    answers[-1].set_result(None)
    assert commit(3) == 3
    answers[-1].set_result(None)
    now[0] = 3599
    assert commit(3) == 3
    now[0] = 3600
    assert commit(3) == 4
    answers[-1].set_exception(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert commit(3) == 5  # refused: sent again, and the pipeline goes on
    answers[-1].set_result(None)
    groups.close()


def test_positions_reach_the_group_without_librdkafka(monkeypatch):
    """An assertion in its admin client ended a driver whose broker was killed: "eonce->refcnt > 0"."""
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", None)
    monkeypatch.setattr(input_groups, "_TIMEOUT_S", 90.0)  # of a busy machine

    def position(offset):
        return {"sources": [{"endOffset": {"a": {"0": offset}}}]}

    with Broker() as broker:
        broker.create_topic("a")
        with Cluster(client_settings(broker.bootstrap_servers, {})) as cluster:
            groups = InputGroups({"bootstrap.servers": broker.bootstrap_servers})
            groups.commit("q", position(7))
            groups.close()
            assert committed_offsets(cluster, "q") == {("a", 0): 7}
            groups.commit("q", position(8))  # of the next run
            groups.close()
            assert committed_offsets(cluster, "q") == {("a", 0): 8}
    monkeypatch.setattr(input_groups, "_TIMEOUT_S", 0.5)
    for number in range(20):
        groups.commit(f"q{number}", position(1))
    groups.close()  # no broker answers: within the time of one call all have their line in the log
    assert groups._refused == {f"q{number}" for number in range(20)}
