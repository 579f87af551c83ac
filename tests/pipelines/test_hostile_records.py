"""Records that were made to hurt, read by Spark: an error in words or rows, and the executor goes on with the next query."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.interop.malformed_batches import CODECS, PAYLOADS, fields, record, varint, wrapped
from tests.pipelines.conftest import Topics
from tests.robustness.wire import call
from tests.support.frames import RawConnection
from tests.tables.test_bombs import headers_bomb

pytestmark = pytest.mark.timeout(300)

UNREADABLE = (
    "a record longer than the batch",
    "a record of negative length",
    "a record shorter than its fields",
    "more records than counted",
)


def produced(server: Any, topic: str, batch: bytes) -> None:
    host, _, port = server.bootstrap_servers.rpartition(":")
    connection = RawConnection(host, int(port))
    request = ProduceRequest(
        None, -1, 5_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    )
    assert call(connection, request, 12).responses[0].partition_responses[0].error_code == 0
    connection.socket.close()


def read(spark: Any, server: Any, topic: str) -> list[Any]:
    options = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    rows: list[Any] = spark.read.format("ottla").options(**options).load().collect()
    return rows


def test_records_that_cannot_be_read(spark: Any, ottla_server: Any) -> None:
    batches = {name: (wrapped(*PAYLOADS[name], CODECS["none"]), "KafkaError|TableError") for name in UNREADABLE}
    batches["a million headers"] = (bytes(headers_bomb(1, 1_000_000)), "has 1000000 headers, more than 100000")
    batches["no zstd"] = (wrapped(b"\xff" * 100, 1, CODECS["zstd"]), "KafkaError|TableError")
    topics = Topics(ottla_server)
    for name, (batch, words) in batches.items():
        topic = topics.new("hostile")
        produced(ottla_server, topic, batch)
        with pytest.raises(Exception, match=words) as raised:
            read(spark, ottla_server, topic)
        assert "KafkaError" in str(raised.value) or "TableError" in str(raised.value), name
    header = varint(1) + b"\xff" + varint(1) + b"\xff"
    odd = record(fields(headers=varint(1) + header))
    topic = topics.new("hostile")
    produced(ottla_server, topic, wrapped(odd, 1, CODECS["none"]))
    (row,) = read(spark, ottla_server, topic)
    assert (row.headers[0].key, bytes(row.headers[0].value)) == ("\ufffd", b"\xff")
