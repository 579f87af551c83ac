"""kafka-transactions on both servers: the same words, a hanging transaction found and ended included."""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.protocol.api import encode_request
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import ProduceResponse
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.testing import Broker
from tests.support.frames import RawConnection
from tests.support.kafka_tools import ConfigCommand, ConsoleConsumer, ProducerPerformance, TransactionsCommand

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

TIMEOUT_MS = 900_000
"""Open for as long as a busy machine takes for all tests here: nobody else aborts it."""
Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", params=["ottla", "apache"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "apache":
        yield request.getfixturevalue("apache_kafka").bootstrap_servers
    else:
        with Broker() as running:
            yield running.bootstrap_servers


class Names(NamedTuple):
    """Others each time: a module may be left and come to again, and Apache Kafka's node stays."""

    tools: str
    hanging: str
    perf: str
    open: str
    """The transactional id."""


_numbers = itertools.count()


@pytest.fixture(scope="module")
def names(servers: str) -> Names:
    del servers  # for each of them
    number = next(_numbers)
    return Names(f"tools{number}", f"hanging{number}", f"perf{number}", f"tools{number}-open")


@pytest.fixture(scope="module")
def open_transaction(servers: str, names: Names) -> Iterator[Producer]:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(
        [
            NewTopic(names.tools, 1, 1),
            NewTopic(names.hanging, 1, 1, config={"retention.ms": "-1"}),
            NewTopic(names.perf, 2, 1),
        ]
    ).values():
        future.result(20)
    client = Producer(
        {"bootstrap.servers": servers, "transactional.id": names.open, "transaction.timeout.ms": TIMEOUT_MS}
    )
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(names.tools, b"one", partition=0)
    assert client.flush(20) == 0
    yield client
    client.abort_transaction(20)


@pytest.fixture
def tool(kafka_tool: Tool, servers: str, open_transaction: Producer) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        result = kafka_tool(TransactionsCommand, "--bootstrap-server", servers, *arguments)
        return re.sub(r"\t", " ", result.stdout + result.stderr)

    return run


def words(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip()]


def test_list(tool: Callable[..., str], names: Names) -> None:
    head, *rows = words(tool("list"))
    assert head == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert [(row[0], row[3]) for row in rows if row[0] == names.open] == [(names.open, "Ongoing")]
    assert words(tool("list", "--duration-filter", "3600000")) == [head]
    assert len(words(tool("list", "--transactional-id-pattern", f"{names.tools}-.*"))) == 2
    assert len(words(tool("list", "--transactional-id-pattern", "nothing.*"))) == 1


def test_describe(tool: Callable[..., str], names: Names) -> None:
    head, row = words(tool("describe", "--transactional-id", names.open))
    assert head[:6] == [
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
    ]  # fmt: skip
    assert (row[0], row[1], row[3], row[4], row[5]) == ("1", names.open, "0", "Ongoing", str(TIMEOUT_MS))
    assert row[-1] == f"{names.tools}-0"
    assert "failed because the ID could not be found" in tool("describe", "--transactional-id", "nobody")


def test_describe_producers(tool: Callable[..., str], names: Names) -> None:
    head, row = words(tool("describe-producers", "--topic", names.tools, "--partition", "0"))
    assert head[:3] == ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch"]
    assert row[1:3] == ["0", "-1"]
    assert row[-1] == "0", "where the open transaction begins"


@pytest.fixture
def hanging_transaction(servers: str, open_transaction: Producer, kafka_tool: Tool, names: Names) -> Iterator[int]:
    """Open on its partition, and no coordinator knows of it: an old producer's write while nobody verifies. Its id."""
    verification(kafka_tool, servers, "false")
    producer_id = 4711
    batch = build_batch(
        [SimpleRecord(1_700_000_000_000, None, b"hanging")],
        producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True,
    )  # fmt: skip
    data = [PartitionProduceData(0, bytes(batch))]
    request = ProduceRequest("nobody", -1, 5000, [TopicProduceData(names.hanging, partition_data=data)])
    host, port = servers.split(":")
    deadline = time.monotonic() + 20
    with RawConnection(host, int(port), timeout=10) as connection:
        while True:
            connection.send_raw(b"".join(bytes(piece) for piece in encode_request(request, 9, 1, "old")))
            answer = ProduceResponse.decode(connection.read_frame() or b"", 5, 9)[0]
            code = answer.responses[0].partition_responses[0].error_code
            if code == 0:
                break
            assert time.monotonic() < deadline, f"verification was never turned off: {code}"
            time.sleep(0.1)
    yield producer_id
    verification(kafka_tool, servers, "true")


def verification(kafka_tool: Tool, servers: str, enabled: str) -> None:
    result = kafka_tool(
        ConfigCommand,
        *("--bootstrap-server", servers, "--alter", "--entity-type", "brokers", "--entity-default"),
        *("--add-config", f"transaction.partition.verification.enable={enabled}"),
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_hanging_transaction_is_found_and_ended(
    tool: Callable[..., str], servers: str, hanging_transaction: int, kafka_tool: Tool, names: Names
) -> None:
    def read(*enough: str) -> list[str]:
        result = kafka_tool(
            ConsoleConsumer,
            *("--bootstrap-server", servers, "--topic", names.hanging, "--partition", "0", "--offset", "earliest"),
            *("--isolation-level", "read_committed"), *enough,
        )  # fmt: skip
        return result.stdout.split()

    client = Producer({"bootstrap.servers": servers})
    client.produce(names.hanging, b"behind-it", partition=0)
    assert client.flush(20) == 0
    assert read("--timeout-ms", "3000") == []
    head, row = words(tool("find-hanging", "--broker-id", "1"))
    assert head[:5] == ["Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch"]
    assert row[:6] == [names.hanging, "0", str(hanging_transaction), "0", "-1", "0"]
    assert tool("abort", "--topic", names.hanging, "--partition", "0", "--start-offset", "0") == ""
    assert read("--max-messages", "1", "--timeout-ms", "40000") == ["behind-it"]
    assert words(tool("find-hanging", "--broker-id", "1")) == [head]


def test_the_java_producer_in_transactions(
    servers: str, kafka_tool: Tool, open_transaction: Producer, names: Names
) -> None:
    """kafka-producer-perf-test speaks transactions v2."""
    result = kafka_tool(
        ProducerPerformance,
        *("--bootstrap-server", servers, "--topic", names.perf, "--num-records", "500", "--record-size", "50"),
        *("--throughput", "-1", "--transactional-id", names.perf, "--transaction-duration-ms", "50"),
    )
    assert "500 records sent" in result.stdout, result.stdout + result.stderr
    result = kafka_tool(
        ConsoleConsumer,
        *("--bootstrap-server", servers, "--topic", names.perf, "--from-beginning", "--max-messages", "500"),
        *("--isolation-level", "read_committed", "--timeout-ms", "20000"),
    )
    assert len(result.stdout.split()) == 500, result.stderr
