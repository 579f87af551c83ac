"""`broker.faults` of requests, disks and single nodes, each shown with confluent-kafka."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.protocol.generated.metadata_response import MetadataResponse
from ottla.server.run import new_event_loop
from ottla.testing import Broker
from ottla.testing.faults import RequestFaults, late_or_lost
from tests.testing.conditions import BOUND_S, until


@pytest.fixture(scope="module")
def shared():
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared):
    yield shared
    shared.faults.clear()


def producer_of(broker: Broker, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, "log_level": 2, **settings})


def values_of(broker: Broker, topic: str) -> list[str]:
    return [record.value for record in broker.records(topic)]


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_lost_acknowledgement(broker, idempotent, copies):
    topic = broker.topic()
    producer = producer_of(broker, **{"enable.idempotence": idempotent, "acks": "all"})
    with broker.faults.lose_acks(1) as fault:
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
    assert fault.count == 1
    assert values_of(broker, topic) == ["x"] * copies


def test_an_error_that_is_retried(broker):
    topic = broker.topic()
    producer = producer_of(broker)
    fault = broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", 2)
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    assert fault.count == 2
    assert values_of(broker, topic) == ["x"]


def test_an_error_that_is_final(broker):
    topic = broker.topic()
    errors = []
    with broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED"):
        producer = producer_of(broker)
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error.name()))
        producer.flush(60)
    assert errors == ["TOPIC_AUTHORIZATION_FAILED"]
    assert values_of(broker, topic) == []


def test_a_commit_that_fails(broker):
    topic = broker.topic()
    broker.produce(topic, "x")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert len(consumer.consume(1, 60)) == 1
    with broker.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", 1) as fault:
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit(asynchronous=False)
        consumer.commit(asynchronous=False)
    consumer.close()
    assert fault.count == 1
    broker.wait_for_lag(topic, 0)


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "FindCoordinator", "OffsetFetch", "Metadata", "JoinGroup"])
def test_a_reader_survives_errors_of(broker, api):
    topic = broker.topic()
    broker.produce(topic, "x")
    code = "NOT_LEADER_OR_FOLLOWER" if api in {"Fetch", "ListOffsets"} else "COORDINATOR_LOAD_IN_PROGRESS"
    fault = broker.faults.error(api, "LEADER_NOT_AVAILABLE" if api == "Metadata" else code, 2)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "retry.backoff.ms": 10,
        "topic.metadata.refresh.fast.interval.ms": 20,
        "log_level": 2,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = until(lambda: next((row for row in consumer.consume(1, 1) if row.error() is None), None))
    consumer.close()
    assert message.value() == b"x"
    assert fault.count == 2


def test_a_delay(broker):
    topic = broker.topic()
    producer = producer_of(broker)
    producer.produce(topic, b"first")
    assert producer.flush(60) == 0
    broker.faults.delay("produce", 400, times=1)
    begun = time.monotonic()
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    assert time.monotonic() - begun >= 0.4
    assert values_of(broker, topic) == ["first", "x"]


def test_a_delay_is_never_shorter():
    """A timer of uvloop counts whole milliseconds: a plain sleep of 2.3 ms ends after 2."""

    async def durations() -> list[float]:
        answer = MetadataResponse()
        begins = []
        for _ in range(20):
            begun = time.monotonic()
            await late_or_lost(answer, 2.3, lost=False)
            begins.append(time.monotonic() - begun)
        return begins

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert min(runner.run(durations())) >= 0.0023


def test_no_fault_acts_on_the_kit_itself(broker):
    broker.faults.error("Produce", "UNKNOWN_SERVER_ERROR")
    broker.faults.error("Metadata", "UNKNOWN_SERVER_ERROR")
    broker.faults.error("Fetch", "UNKNOWN_SERVER_ERROR")
    topic = broker.topic()
    broker.produce(topic, "x")
    assert values_of(broker, topic) == ["x"]


def test_a_full_disk(broker):
    topic = broker.topic()
    broker.produce(topic, "before")
    producer = producer_of(broker, **{"message.timeout.ms": 1_500})
    outcomes = []
    with broker.faults.full_disk():
        producer.produce(topic, b"lost", on_delivery=lambda error, _: outcomes.append(error is None))
        producer.flush(60)
    assert outcomes == [False]
    broker.produce(topic, "after")
    assert values_of(broker, topic) == ["before", "after"]


def test_a_pause(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert admin.list_topics(timeout=60).brokers
    with broker.faults.paused(), pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)
    assert admin.list_topics(timeout=60).brokers


def test_a_pause_has_begun_when_the_call_returns(broker):
    """The node is in the middle of its work: the call waits for the end of this work."""
    busy = threading.Event()
    broker.nodes[0].loop.call_soon_threadsafe(busy.wait, BOUND_S)
    call = threading.Thread(target=broker.faults.pause)
    call.start()
    call.join(0.2)
    assert call.is_alive()
    busy.set()
    call.join(BOUND_S)
    assert not call.is_alive()


def test_a_killed_node_starts_again_with_its_records():
    with Broker() as broker:
        topic = broker.topic()
        broker.produce(topic, "x")
        servers = broker.bootstrap_servers
        broker.faults.kill()
        with pytest.raises(RuntimeError, match="not running"):
            _ = broker.bootstrap_servers
        broker.faults.restart()
        assert broker.bootstrap_servers == servers
        assert values_of(broker, topic) == ["x"]
        broker.faults.restart()
        assert values_of(broker, topic) == ["x"]


def test_a_forked_child_knows_the_address():
    """A worker that a test forks asks the broker object for the address."""
    context = multiprocessing.get_context("fork")
    addresses = context.SimpleQueue()
    with Broker() as broker:
        child = context.Process(target=lambda: addresses.put(broker.bootstrap_servers))
        child.start()
        child.join(BOUND_S)
        assert child.exitcode == 0
        assert addresses.get() == broker.bootstrap_servers


def test_a_forked_child_gives_up_the_sockets():
    """A child that a test forked would keep the ports and the connections of a killed node."""
    context = multiprocessing.get_context("fork")
    forked, release = context.Event(), context.Event()

    def live() -> None:
        forked.set()
        release.wait(BOUND_S)

    with Broker() as broker:
        topic = broker.topic()
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), BOUND_S) as connection:
            broker.produce(topic, "x")  # by now the node has accepted the connection above too
            child = context.Process(target=live)
            child.start()
            try:
                assert forked.wait(BOUND_S)
                broker.produce(topic, "y")  # the parent's node goes on
                broker.faults.kill()
                assert connection.recv(1) == b""
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((host, int(port)), BOUND_S)
                broker.faults.restart()
                assert values_of(broker, topic) == ["x", "y"]
            finally:
                release.set()
                child.join(BOUND_S)
    assert child.exitcode == 0


def test_wrong_names_are_refused(broker):
    with pytest.raises(ValueError, match="no API 'Prodce'"):
        broker.faults.delay("Prodce", 1)
    with pytest.raises(ValueError, match="no error 'NOT_ENOUGH'"):
        broker.faults.error("Produce", "NOT_ENOUGH")
    with pytest.raises(ValueError, match="probability"):
        broker.faults.lose_acks(probability=2)
    with pytest.raises(ValueError, match="no node 2"):
        broker.faults.kill(2)


def test_a_seed_repeats_the_choices():
    def choices(seed: int | None) -> list[bool]:
        faults = RequestFaults(seed)
        faults.lose_acks(None, probability=0.5)
        return [bool(faults.next(0, 1)) for _ in range(64)]

    assert choices(4711) == choices(4711)
    assert choices(4711) != choices(4712)
    assert RequestFaults().seed != RequestFaults().seed


def test_the_seed_is_a_note_of_the_failure():
    def fail() -> None:
        with Broker(seed=4711) as broker:
            broker.faults.error("Produce", "UNKNOWN_SERVER_ERROR", probability=0.5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as failure:
        fail()
    assert "Broker(seed=4711): error PRODUCE UNKNOWN_SERVER_ERROR: 0 times" in failure.value.__notes__[0]
