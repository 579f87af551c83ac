"""Connectors whose topic is deleted and created again: one clear error, or by option every record of the new topic."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.connect.sender import Outgoing, Sender
from ottla.connect.worker import run_connector
from ottla.model.user_error import UserError
from ottla.tables.query import topic_table
from ottla.testing import Broker
from tests.support.committed import await_decided

pytestmark = pytest.mark.timeout(180)
PROPERTIES = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
OLD, NEW = 100, 250


@pytest.fixture(scope="module")
def here():
    with Broker(properties=PROPERTIES) as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture(scope="module")
def there():
    with Broker(properties=PROPERTIES) as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers}


def create(client, topic, partitions):
    admin = AdminClient({**client, "log_level": 3})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


def create_again(client, topic, partitions):
    admin = AdminClient({**client, "log_level": 3})
    admin.delete_topics([topic])[topic].result(30)
    deadline = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    create(client, topic, partitions)


def send(client, topic, stem, count):
    sender = Sender(client)
    sender.send(Outgoing(topic, None, json.dumps({"id": f"{stem}{n}"}).encode(), None, n % 2) for n in range(count))
    sender.flush()


def ids(stem, count):
    return Counter(f"{stem}{n}" for n in range(count))


def in_topic(client, topic):
    await_decided(client["bootstrap.servers"], topic)
    return Counter(json.loads(row["value"])["id"] for row in topic_table(client, topic).to_pylist())


def in_table(path, table):
    with sqlite3.connect(path) as database:
        return Counter(row[0] for row in database.execute(f'select id from "{table}"'))


def config(kind, here, there, tmp_path):
    """A connector that reads `topic` of the cluster `there`, and a function that returns what it wrote."""
    name = f"again-{kind}"
    if kind == "mirror-source":
        settings = {"connector.class": "mirror-source", "source.cluster.bootstrap.servers": there["bootstrap.servers"],
                    "topics": name, "source.cluster.alias": "there"}  # fmt: skip
        return settings | {"name": name}, here, lambda: in_topic(here, f"there.{name}")
    if kind == "mirror-sink":
        settings = {"connector.class": "mirror-sink", "target.cluster.bootstrap.servers": here["bootstrap.servers"],
                    "topics": name, "source.cluster.alias": "from"}  # fmt: skip
        return settings | {"name": name}, there, lambda: in_topic(here, f"from.{name}")
    path = tmp_path / "rows.db"
    settings = {"connector.class": "sql-sink", "connection.url": f"sqlite:///{path}", "topics": name,
                "table.name.format": "rows", "flush.size": "7"}  # fmt: skip
    return settings | {"name": name}, there, lambda: in_table(path, "rows")


@pytest.mark.parametrize("kind", ["mirror-source", "mirror-sink", "sql-sink"])
def test_a_topic_that_was_created_again(kind, here, there, tmp_path):
    settings, client, written = config(kind, here, there, tmp_path)
    topic = settings["topics"]
    create(there, topic, 3)
    send(there, topic, "old", OLD)
    assert run_connector(settings, client, once=True) == OLD
    create_again(there, topic, 2)
    send(there, topic, "new", NEW)
    with pytest.raises(UserError, match=rf"topic {topic} has the id .* deleted and created again.* on.topic.recreated"):
        run_connector(settings, client, once=True)
    assert written() == ids("old", OLD), "a refusal writes nothing"
    restart = settings | {"on.topic.recreated": "restart"}
    assert run_connector(restart, client, once=True) == NEW
    assert written() == ids("old", OLD) + ids("new", NEW)
    assert run_connector(restart, client, once=True) == 0
    send(there, topic, "more", 10)
    assert run_connector(settings, client, once=True) == 10, "the new topic is now the connector's own"
    assert written() == ids("old", OLD) + ids("new", NEW) + ids("more", 10)


@pytest.mark.parametrize("kind", ["mirror-source", "sql-sink"])
def test_a_topic_that_is_created_again_under_a_running_connector(kind, here, there, tmp_path):
    settings, client, _ = config(kind, here, there, tmp_path)
    settings = {**settings, "name": f"run-{kind}", "topics": f"run-{kind}"}
    topic = settings["topics"]
    create(there, topic, 2)
    send(there, topic, "old", OLD)
    counts = []

    def progress(count, _lag):
        counts.append(count)
        if count == OLD and len(counts) > 3 and counts[-2] == OLD:
            create_again(there, topic, 2)
            send(there, topic, "new", NEW)
            counts.append(-1)

    with pytest.raises(UserError, match="deleted and created again"):
        run_connector(settings, client, once=False, progress=progress, stopping=lambda: len(counts) > 200)


def test_an_unknown_choice_is_one_clear_error(here, there, tmp_path):
    settings, client, _ = config("sql-sink", here, there, tmp_path)
    with pytest.raises(UserError, match=r"on.topic.recreated is fail or restart, not 'maybe'"):
        run_connector(settings | {"on.topic.recreated": "maybe"}, client, once=True)
