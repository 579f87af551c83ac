"""What must hold on a recorded `node` folder: the answers of the manifest, and that every part of it can go on.

Each check takes a `Started` whose `observed` was taken before anything was written, and writes only where no other check
looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ottla.client.share_consumer import ACCEPT, ShareConsumer
from ottla.client.transactions import describe_transaction
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records_build import SimpleRecord, build_batch
from tests.registry.instances import RegistryThread, call, register
from tests.security.session import Session
from tests.upgrade import observations as observe
from tests.upgrade.observations import Json
from tests.upgrade.rows import START_MS, Record, send, send_with
from tests.upgrade.scenes import groups as group_scene
from tests.upgrade.scenes import registry as registry_scene
from tests.upgrade.scenes.steps import transactional_producer
from tests.upgrade.started import Started


def same(part: str) -> Callable[[Started], None]:
    """The node's answer is the manifest's, part by part so that a difference is short."""

    def check(node: Started) -> None:
        if part not in node.manifest:
            pytest.skip(f"{node.manifest['version']} did not record {part}")
        recorded, answered = node.manifest[part], node.observed[part]
        if isinstance(recorded, dict):
            for name, value in recorded.items():
                assert answered.get(name) == value, (part, name)
            assert set(answered) == set(recorded), part
        assert answered == recorded, part

    check.__name__ = f"same_{part}"
    return check


def records_after(node: Started) -> None:
    """Every topic takes a record, at the offset behind the last one, and shows what was there before it."""
    servers = node.address()
    places = [
        (topic, p) for topic, p in observe.places(node.manifest["topics"]) if topic.startswith(("codec", "grown"))
    ]
    for topic, partition in places:
        send(servers, topic, [Record(b"later", b"by this version", START_MS, [], partition)])
    for place, found in observe.records(servers, places).items():
        before = node.manifest["records"][place]
        assert found["rows"][:-1] == before["rows"], place
        assert found["rows"][-1][:1] + found["rows"][-1][3:5] == [before["end"], "later", "by this version"], place


def transactions_after(node: Started) -> None:
    """A producer that comes back ends what it left open, keeps its id with a higher epoch, and commits more."""
    servers, before = node.address(), node.manifest["transactions"]
    for name in ("stayer", "clerk"):
        producer = transactional_producer(servers, name)
        with observe.connected(servers) as cluster:
            _, state = describe_transaction(cluster, name)
            assert state.producer_id == before[name]["producer_id"], name
            assert state.producer_epoch > before[name]["producer_epoch"], name
        producer.begin_transaction()
        send_with(producer, "ledger", [Record(b"later", name.encode(), START_MS)])
        group_scene.offsets_in(producer, servers, f"{name}-later", "codec-none", 5)
        producer.commit_transaction(30)
    old = node.manifest["records"]["ledger-0"]
    found = observe.records(servers, [("ledger", 0)])["ledger-0"]
    assert found["stable_end"] == found["end"]
    open_ones = [row[0] for row in old["rows"] if row[3] == "stayer"]
    assert found["not_committed"] == [n for n in old["not_committed"] if n < old["stable_end"]] + open_ones
    assert [row[4] for row in found["rows"][len(old["rows"]) :]] == ["stayer", "clerk"]
    with observe.connected(servers) as cluster:
        assert observe.committed(cluster, "pending-readers") == {}
        assert [observe.committed(cluster, f"{name}-later")["codec-none-0"][0] for name in before] == [5, 5]


def producers_after(node: Started) -> None:
    """The last batch of an idempotent producer is a duplicate, the next sequence is taken, a gap is refused."""
    (state,) = node.manifest["producers"]["idempotent-0"]
    end = node.manifest["records"]["idempotent-0"]["end"]
    last = state["last_sequence"]
    assert _produce(node, state, last) == (ErrorCode.NONE, end - 1)
    assert _produce(node, state, last + 5)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _produce(node, state, last + 1) == (ErrorCode.NONE, end)


def _produce(node: Started, state: Json, sequence: int) -> tuple[int, int]:
    ids = {"producer_id": state["producer_id"], "producer_epoch": state["producer_epoch"]}
    record = SimpleRecord(START_MS, None, b"sequence %d" % sequence)
    batch = bytes(build_batch([record], base_sequence=sequence, **ids))
    data = TopicProduceData("idempotent", partition_data=[PartitionProduceData(0, batch)])
    with Session(node.broker.node.ports["PLAINTEXT"]) as session:
        answer = session.ask(ProduceRequest(None, -1, 30_000, [data]), 11)
    row = answer.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


def members_after(node: Started) -> None:
    """A member of the same name goes on at the committed offsets, in both protocols."""
    for protocol in ("classic", "consumer"):
        name = f"{protocol}-static"
        offsets = node.manifest["groups"][name]["offsets"]
        starts = {place: offsets[place][0] for place in sorted(offsets)}
        assert _first_offsets(node.address(), protocol, name) == starts, name


def _first_offsets(servers: str, protocol: str, group: str) -> dict[str, int]:
    settings: dict[str, Any] = {
        "group.id": group,
        "group.protocol": protocol,
        "group.instance.id": f"{protocol}-instance",
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": 1_800_000, "max.poll.interval.ms": 1_800_000}
    consumer = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, "log_level": 3} | settings)
    consumer.subscribe([group_scene.TOPIC])
    found: dict[str, int] = {}
    deadline = time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None, message.error()
            found.setdefault(f"{message.topic()}-{message.partition()}", message.offset())
    consumer.commit(offsets=[TopicPartition(group_scene.TOPIC, 0, 10)], asynchronous=False)
    consumer.close()
    return dict(sorted(found.items()))


def deliveries_after(node: Started) -> None:
    """A share group delivers what was not accepted or rejected, counts the deliveries on, and delivers nothing twice."""
    expected = {int(offset): count for offset, count in node.manifest["shared"].items()}
    assert _accepted(node.address(), len(expected)) == expected
    end = node.manifest["records"]["shared-0"]["end"]
    send(node.address(), group_scene.SHARED, [Record(None, b"by this version")])
    assert _accepted(node.address(), 1) == {end: 1}


def _accepted(servers: str, count: int) -> dict[int, int]:
    """Offset -> number of the delivery, of what a new member of the share group takes and accepts."""
    taken: dict[int, int] = {}
    with observe.connected(servers) as cluster:
        member = ShareConsumer(cluster, "sharers", group_scene.SHARED)
        deadline = time.monotonic() + 60
        while len(taken) < count and time.monotonic() < deadline:
            for one in member.poll(100):
                taken[one.offset] = one.delivery
                member.acknowledge(one, ACCEPT)
        member.close()
    return taken


def streams_after(node: Started) -> None:
    """A new member with the recorded topology gets every task."""
    with observe.connected(node.address()) as cluster:
        epoch, tasks = 0, []
        deadline = time.monotonic() + 60
        while not tasks and time.monotonic() < deadline:
            answer = group_scene.streams_heartbeat(cluster, "later-member", epoch)
            assert answer.error_code == 0, answer.error_message
            epoch, tasks = answer.member_epoch, answer.active_tasks or []
            time.sleep(0 if tasks else 0.1)
        assert [one.subtopology_id for one in tasks] == ["0", "1"]
        assert epoch > node.manifest["groups"]["streamers"]["group"]["group_epoch"]
        group_scene.streams_heartbeat(cluster, "later-member", -1)


def logins(node: Started) -> None:
    """Every user and token logs in with its secret and with no other; what ACLs allow and deny still holds."""
    port = node.broker.node.ports["SASL"]
    for login in node.manifest["logins"]:
        for secret, expected in ((login["secret"], 0), ("wrong", ErrorCode.SASL_AUTHENTICATION_FAILED)):
            with Session(port) as session:
                answer = session.scram(login["mechanism"], login["name"], secret, token=login["token"])
                assert answer.error_code == expected, (login, answer.error_message)
    secrets = {login["name"]: login["secret"] for login in node.manifest["logins"]}
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    allowed = {("ada", "codec-gzip"): None, ("bob", "codec-zstd"): None, ("bob", "codec-gzip"): denied}
    for (user, topic), error in allowed.items():
        assert _read_as(node.address("SASL"), user, secrets[user], topic) == error, (user, topic)


def _read_as(servers: str, user: str, password: str, topic: str) -> int | None:
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password}
    settings = {"security.protocol": "SASL_PLAINTEXT", "group.id": "readers", "log_level": 3, **login}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None, (user, topic)
        return message.error().code() if message.error() else None
    except KafkaException as error:
        return int(error.args[0].code())
    finally:
        consumer.close()


def registry(node: Started) -> None:
    """Every answer is the recorded one; a schema that is known keeps its id, a new one gets the next."""
    recorded = node.manifest["registry"]
    with RegistryThread(node.address()) as running:
        answers = registry_scene.answers(running.url)
        for path, answer in recorded.items():
            assert answers[path] == answer, path
        assert set(answers) == set(recorded)
        highest = max(int(path.rpartition("/")[2]) for path, (status, _) in recorded.items()
                      if path.startswith("/schemas/ids/") and path.count("/") == 3 and status == 200)  # fmt: skip
        assert register(running.url, "address-value", registry_scene.ADDRESS)[1]["id"] == 1
        status, made = register(running.url, "later", '"double"')
        assert status == 200
        assert made["id"] > highest
        assert call(running.url, "GET", f"/schemas/ids/{made['id']}")[1]["schema"] == '"double"'


PARTS = ("cluster_id", "features", "topics", "configs", "records", "producers", "transactions", "security", "groups")
CHECKS: tuple[Callable[[Started], None], ...] = (
    *map(same, PARTS), records_after, transactions_after, producers_after, members_after, deliveries_after, streams_after,
    logins, registry,
)  # fmt: skip
