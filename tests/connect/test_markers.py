"""Markers of exactly-once writes: one hidden group for a query, the earlier format, expiry and long transactions."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.cli.verbs.group import group as group_command
from ottla.cli.verbs.topic import topic as topic_command
from ottla.connect import exactly_once
from ottla.connect.clients import consumer_settings
from ottla.connect.exactly_once import KEEP_S, ExactlyOnce, Fenced
from ottla.connect.markers import TASKS_IN_A_GROUP, Marker, forget_markers, markers_of
from ottla.connect.sender import Outgoing
from ottla.connect.sinks.cluster import ClusterSink
from ottla.connect.transactions import Transactions
from ottla.connect.worker import run_connector
from ottla.console.cluster.collect import collect
from ottla.console.cluster.history import History
from ottla.console.lineage import find_listeners, gather
from ottla.console.pages.overview import concerns
from ottla.model.marker_groups import MARKER_TOPIC, connector_writer, is_marker_group
from ottla.model.user_error import UserError
from ottla.tables.query import topic_table
from ottla.testing import Broker
from tests.support.ports import free_ports
from tests.upgrade import observations as observe

pytestmark = pytest.mark.timeout(120)
QUERY = "6a1e7c0a-4c1b-4ef1-9a3e-2f0f5c7f9b10"


@pytest.fixture(scope="module")
def http_port():
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def client(http_port):
    properties = {
        "ottla.http.listener": f"127.0.0.1:{http_port}",
        "transaction.max.timeout.ms": "200000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "auto.create.topics.enable": "true",
    }
    with Broker(properties=properties) as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"}


def records(topic, *values):
    return [Outgoing(topic, None, value.encode()) for value in values]


def groups(client):
    with observe.connected(client["bootstrap.servers"]) as cluster:
        return set(collect(cluster, marker_groups=True).groups)


@pytest.fixture
def places(monkeypatch):
    """The markers that each transaction commits."""
    seen = []
    send = Transactions.send_offsets

    def seeing(self, offsets, group):
        seen.append([(place.partition, place.offset) for place in offsets])
        send(self, offsets, group)

    monkeypatch.setattr(Transactions, "send_offsets", seeing)
    return seen


def test_a_query_has_one_group_for_sixteen_tasks(client):
    for task in (0, 3, TASKS_IN_A_GROUP + 1):
        with ExactlyOnce(client, QUERY, task, 7, "many") as attempt:
            attempt.write(records("many", *"ab"), lambda: 99)
    own = {group for group in groups(client) if QUERY in group}
    assert own == {f"ottla-markers-{QUERY}", f"ottla-markers-{QUERY}.1"}
    marker = Marker(version=7, rows=2, size=2, identities=99)
    assert markers_of(client, QUERY) == {0: marker, 3: marker, TASKS_IN_A_GROUP + 1: marker}
    with ExactlyOnce(client, QUERY, 1, 7, "many") as task_without_rows:
        assert task_without_rows.done() is None
    assert sorted(forget_markers(client, QUERY)) == sorted(own)
    assert markers_of(client, QUERY) == {}
    assert forget_markers(client, QUERY) == []


def test_markers_are_no_lag_and_stand_in_no_list(client, http_port):
    """A marker of batch 5 is an offset of a topic that never has a record, or of the output topic (earlier version)."""
    with ExactlyOnce(client, QUERY, 0, 5, "hidden") as attempt:
        attempt.write(records("hidden", *"abcdefghij"))
    earlier = f"ottla-{QUERY}-0"
    commit(client, earlier, "hidden", 2)
    commit(client, "reader", "hidden", 11)  # behind the end of the transaction
    history = History()
    with observe.connected(client["bootstrap.servers"]) as cluster:
        snapshot = collect(cluster)
        shown = set(collect(cluster, marker_groups=True).groups)
    history.add(snapshot)
    assert {"reader", earlier, f"ottla-markers-{QUERY}"} <= shown
    assert not any(is_marker_group(group) for group in snapshot.groups)
    assert "reader" in snapshot.groups
    assert concerns(snapshot, history.lags(snapshot)) == []
    assert snapshot.topics[MARKER_TOPIC].internal
    listed = invoke(group_command, "list", client)
    assert "reader" in listed
    assert QUERY not in listed
    assert f"ottla-markers-{QUERY}" in invoke(group_command, "list", client, "--all")
    assert MARKER_TOPIC not in invoke(topic_command, "list", client)
    assert MARKER_TOPIC in invoke(topic_command, "list", client, "--internal")
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=30) as answer:
        lag = [line for line in answer.read().decode().splitlines() if line.startswith("ottla_group_lag_records{")]
    assert any('group="reader"' in line for line in lag)
    assert not any(QUERY in line for line in lag)
    assert set(forget_markers(client, QUERY)) == {earlier, f"ottla-markers-{QUERY}"}


def test_a_writer_and_its_groups_are_drawn_as_the_pipeline(client, http_port):
    """The group of its markers is hidden, and the group of its input positions is no reader of its own."""
    with ExactlyOnce(client, QUERY, 0, 0, "drawn") as attempt:
        attempt.write(records("drawn", *"ab"))
    with ExactlyOnce(client, "mirror.in-0", 0, 0, "copied", writer=connector_writer("mirror")) as attempt:
        attempt.write(records("copied", *"ab"))
    for group, topic in (("shop.large", "copied"), ("connect-mirror", "drawn"), ("people", "drawn")):
        commit(client, group, topic, 1)
    pipelines = [
        {"name": "shop", "outputs": ["topic:drawn"], "queries": [{"name": "shop/large", "id": QUERY}]},
        {"name": "mirror", "kind": "connector", "outputs": ["topic:copied"]},
    ]
    with observe.connected(client["bootstrap.servers"]) as cluster:
        snapshot = collect(cluster)
        drawn = gather(snapshot, find_listeners(cluster, snapshot), pipelines).of({"drawn", "copied"})
        alone = gather(snapshot, find_listeners(cluster, snapshot)).of({"drawn", "copied"})
    looking = {"adminclient-1"}  # `collect` reads the times of unread records
    assert drawn.producers == {"pipeline shop", "connector mirror"}
    assert drawn.consumers - looking == {"pipeline shop", "connector mirror", "group people"}
    assert alone.producers == {f"ottla-{QUERY}", "ottla-connector-mirror"}
    assert not any("markers" in reader for reader in alone.consumers)


def invoke(command, verb, client, *words):
    done = CliRunner().invoke(command, [verb, "-b", client["bootstrap.servers"], "-o", "json", *words])
    assert done.exit_code == 0, done.output
    return done.output


def commit(client, group, topic, offset, note=""):
    consumer = Consumer(consumer_settings(client, group))
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, note)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("at", ["output topic", "marker topic of one partition"])
def test_a_marker_of_the_earlier_format_counts_until_there_is_a_new_one(at):
    with Broker() as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(client)
        for topic in ("upgraded", MARKER_TOPIC):
            admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
        output_topic = "upgraded" if at == "output topic" else None
        note = json.dumps({"rows": 3, "bytes": 30, "version": 8})
        for task in (0, 2):
            commit(client, f"ottla-{QUERY}-{task}", output_topic or MARKER_TOPIC, 9, note)
        with ExactlyOnce(client, QUERY, 2, 8, output_topic) as repeated:
            assert repeated.done() == Marker(version=8, rows=3, size=30)
            assert repeated.reached() == 8
        with ExactlyOnce(client, QUERY, 2, 9, output_topic) as following:
            assert following.done() is None
            following.write(records("upgraded", "x"))
            assert following.reached() == 9
        with ExactlyOnce(client, QUERY, 0, 8, output_topic) as sibling:
            assert sibling.reached() == 8
        assert len(admin.list_topics(timeout=30).topics[MARKER_TOPIC].partitions) == TASKS_IN_A_GROUP


def test_a_marker_of_a_later_format_is_refused(client):
    commit(client, "ottla-markers-future", MARKER_TOPIC, 1, '{"format": 3}')
    with ExactlyOnce(client, "future", 0, 1, None) as attempt, pytest.raises(UserError, match="upgrade Ottla"):
        attempt.done()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_long_batch_commits_its_markers_again(client, places, monkeypatch):
    """Tasks that were done first in a batch of days: their markers would expire before the last task is done."""
    monkeypatch.setattr(exactly_once, "_kept_at", {})
    clock = Clock()

    def run(task, version):
        with ExactlyOnce(client, "days", task, version, None, clock=clock) as attempt:
            attempt.write(records("days", f"{task}"))

    run(4, 1)  # of the batch before: not needed any more
    for task in range(3):
        run(task, 2)
    clock.now += KEEP_S - 1
    run(3, 2)
    assert places[-1] == [(3, 3)]
    clock.now += 1
    run(5, 2)
    assert places[-1] == [(0, 3), (1, 3), (2, 3), (3, 3), (5, 3)]
    run(6, 2)
    assert places[-1] == [(6, 3)]
    assert {task: marker.version for task, marker in markers_of(client, "days").items()} == {
        4: 1, 0: 2, 1: 2, 2: 2, 3: 2, 5: 2, 6: 2,
    }  # fmt: skip


def test_a_mirror_commits_its_markers_again_before_they_expire(client, places):
    admin = AdminClient(client)
    admin.create_topics([NewTopic("mirrored", 1)])["mirrored"].result(30)
    config = {"name": "keeps", "connector.class": "mirror-sink", "topics": "mirrored", "flush.size": "10",
              "target.cluster.bootstrap.servers": client["bootstrap.servers"], "source.cluster.alias": "east",
              "offsets.keep.interval.ms": "1"}  # fmt: skip
    with ExactlyOnce(client, "feed", 0, 0, None) as feed:
        feed.write(records("mirrored", *"abc"))
    kept, keep = [], ClusterSink.keep

    def seeing(self):
        before = len(places)
        keep(self)
        kept.append(places[before:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterSink, "keep", seeing)
        assert run_connector(config, client, once=True) == 3
    (before, *_), again = places[1:], kept[-1]
    assert again == [before]
    assert len(topic_table(client, "east.mirrored").to_pylist()) == 3


def test_a_writer_that_was_overtaken_does_not_keep_an_older_marker(client):
    with ExactlyOnce(client, "kept", 0, 1, None) as first:
        first.write(records("kept", "1"))
        with ExactlyOnce(client, "kept", 0, 2, None) as second:
            second.write(records("kept", "2"))
        with pytest.raises((UserError, Fenced)):
            first.keep()
        assert second.version == 2
    assert markers_of(client, "kept")[0].version == 2


def test_the_timeout_of_a_long_task_is_lowered_to_what_the_broker_accepts(client):
    with ExactlyOnce(client, "long", 0, 1, None, timeout_ms=900_000) as attempt:
        assert attempt.write(records("long", "1")).rows == 1
    fixed = {**client, "transaction.timeout.ms": "900000"}
    with pytest.raises(UserError, match="INVALID_TRANSACTION_TIMEOUT"), ExactlyOnce(fixed, "long", 0, 2, None):
        pass


def test_a_transaction_that_the_broker_ended_is_reported_as_too_long(client):
    def slow():
        yield from records("slow", "1")
        began = time.monotonic()
        while time.monotonic() - began < 1.5 or open_transactions(client, "ottla-slow-0"):
            assert time.monotonic() - began < 60
            time.sleep(0.1)
        yield from records("slow", "2")

    short = {**client, "transaction.timeout.ms": "1000", "linger.ms": "0"}
    with ExactlyOnce(short, "slow", 0, 1, None) as attempt:
        with pytest.raises(UserError, match=r"open for longer than 1 s.*transaction\.max\.timeout\.ms"):
            attempt.write(slow())
        assert attempt.done() is None
    assert topic_table(client, "slow").to_pylist() == []


def open_transactions(client, transactional_id):
    from ottla.client.transactions import list_transactions

    with observe.connected(client["bootstrap.servers"]) as cluster:
        rows = [row for _, row in list_transactions(cluster) if row.transactional_id == transactional_id]
    return [row for row in rows if row.transaction_state == "Ongoing"]
