"""One data folder, two servers: each goes on with the other's transactions, the open one included."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.interop.ottla_server import OttlaServer
from tests.interop.settled import await_ended
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_tools import DumpLogSegments, TransactionsCommand, run_tool

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("requires_apache_kafka"),
]

PROPERTIES = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.mark.parametrize(
    "clean", [pytest.param(True, id="stopped", marks=pytest.mark.soak), pytest.param(False, id="killed")]
)
@pytest.mark.parametrize(
    ("first", "second"), [(OttlaServer, ApacheKafka), (ApacheKafka, OttlaServer)], ids=["to-apache", "to-ottla"]
)
def test_transactions_move_between_the_servers(
    first: type[ApacheKafka], second: type[ApacheKafka], clean: bool, tmp_path: Path
) -> None:
    server = first(tmp_path, properties=PROPERTIES)
    with server:
        create(server)
        done = producer(server, "done")
        commit(done, "c1")
        abort(done, "a1")
        commit(done, "c2")
        open_ = producer(server, "open")
        open_.begin_transaction()
        open_.produce("t", b"o1", partition=0)
        assert open_.flush(20) == 0
        open_.send_offsets_to_transaction([TopicPartition("t", 0, 2)], group(server), 20)
        assert read(server, "read_committed") == ["c1", "c2"]
        before = describe(server)
        assert before["open"][1:] == ["Ongoing"]
        if not clean:
            server.kill()
    # The producer's process goes with its broker; nobody commits what it has open.
    with second(tmp_path, properties=PROPERTIES) as server:
        assert describe(server) == before
        assert read(server, "read_committed") == ["c1", "c2"], "the open transaction must stay hidden"
        assert read(server, "read_uncommitted") == ["c1", "a1", "c2", "o1"]
        fencing = producer(server, "open")  # aborts it
        commit(fencing, "c3")
        assert read(server, "read_committed") == ["c1", "c2", "c3"]
        assert committed(server) == -1001, "the offsets of the aborted transaction must not count"
        fencing.begin_transaction()
        fencing.send_offsets_to_transaction([TopicPartition("t", 0, 3)], group(server), 20)
        fencing.commit_transaction(20)
        assert committed(server) == 3
        again = producer(server, "done")
        commit(again, "c4")
        assert read(server, "read_committed") == ["c1", "c2", "c3", "c4"]


def test_both_write_the_same_records(tmp_path: Path) -> None:
    """What DumpLogSegments makes of `__transaction_state`, after the same requests to each."""
    dumps = [dump(server, tmp_path / server.__name__) for server in (ApacheKafka, OttlaServer)]
    assert dumps[0] == dumps[1]
    states = [record["data"]["transactionStatus"] for record in dumps[0]]
    assert states == [0, *(1, 2, 4), *(1, 3, 5), 0]


def dump(kind: type[ApacheKafka], directory: Path) -> list[dict[str, Any]]:
    with kind(directory, properties=PROPERTIES) as server:
        create(server)
        client = producer(server, "mine")
        commit(client, "c1")
        wait_until_complete(server)
        abort(client, "a1")
        wait_until_complete(server)
        producer(server, "mine")
    segment = min(directory.rglob("__transaction_state-0/*.log"))
    result = run_tool(DumpLogSegments, "--transaction-log-decoder", "--files", str(segment))
    assert '"transactionalId":"mine"' in result.stdout, result.stdout + result.stderr
    payloads = re.findall(r"payload: (.*)", result.stdout)
    return [json.loads(re.sub(r"\b\d{13}\b", '"now"', payload)) for payload in payloads]


def wait_until_complete(server: ApacheKafka) -> None:
    for _ in range(100):
        result = run_tool(TransactionsCommand, "--bootstrap-server", server.bootstrap_servers, "list")
        if "Complete" in result.stdout:
            return
        time.sleep(0.1)
    pytest.fail(result.stdout + result.stderr)


def create(server: ApacheKafka) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
        future.result(20)


def producer(server: ApacheKafka, transactional_id: str) -> Producer:
    client = Producer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 900_000,  # the open one stays open, however long the second server takes to start
        }
    )
    for _ in range(20):
        try:
            client.init_transactions(20)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return client
    pytest.fail(f"{transactional_id} was never initialised")


def commit(client: Producer, value: str) -> None:
    client.begin_transaction()
    client.produce("t", value.encode(), partition=0)
    client.commit_transaction(20)


def abort(client: Producer, value: str) -> None:
    client.begin_transaction()
    client.produce("t", value.encode(), partition=0)
    assert client.flush(20) == 0
    client.abort_transaction(20)


def group(server: ApacheKafka) -> object:
    """The metadata of a consumer that only stores its offsets in a group."""
    client = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
    try:
        return client.consumer_group_metadata()
    finally:
        client.close()


def committed(server: ApacheKafka) -> int:
    client = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
    try:
        for _ in range(50):
            try:
                return client.committed([TopicPartition("t", 0)], 20)[0].offset
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                time.sleep(0.2)
    finally:
        client.close()
    pytest.fail("the offset never became stable")


def read(server: ApacheKafka, isolation: str) -> list[str]:
    await_ended(server.bootstrap_servers)
    client = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "nobody",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    client.assign([TopicPartition("t", 0, 0)])
    values = []
    for _ in range(200):
        message = client.poll(0.5)
        if message is not None and message.error():
            break
        if message is not None:
            values.append((message.value() or b"").decode())
    client.close()
    return values


def describe(server: ApacheKafka) -> dict[str, list[str]]:
    """Transactional id -> producer id and state, as kafka-transactions lists them."""
    for _ in range(50):
        result = run_tool(TransactionsCommand, "--bootstrap-server", server.bootstrap_servers, "list")
        rows = [line.split() for line in result.stdout.splitlines()[1:] if line.strip()]
        if result.returncode == 0 and len(rows) == 2 and not any(row[3].startswith("Prepare") for row in rows):
            return {row[0]: row[2:] for row in rows}
        time.sleep(0.2)
    pytest.fail(result.stdout + result.stderr)
