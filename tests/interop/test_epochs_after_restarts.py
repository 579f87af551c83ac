"""OffsetForLeaderEpoch after restarts in which nothing was written: each epoch ends where Apache Kafka says."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.generated.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from tests.interop.ottla_server import OttlaServer
from tests.interop.producer_session import ask
from tests.support.apache_kafka import ApacheKafka
from tests.support.frames import RawConnection

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(120)]
VERSION = 4


def epoch_ends(server: ApacheKafka, topic: str) -> list[tuple[int, int, int]]:
    """Error, epoch and end offset that the server names for epochs 0 to 7."""
    found = []
    with RawConnection("127.0.0.1", server.port) as connection:
        for epoch in range(8):
            asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [asked])])
            response, _ = OffsetForLeaderEpochResponse.decode(ask(connection, request, VERSION), 0, VERSION)
            (answer,) = response.topics[0].partitions
            found.append((answer.error_code, answer.leader_epoch, answer.end_offset))
    return found


def live(server: ApacheKafka) -> dict[str, list[tuple[int, int, int]]]:
    server.start()
    try:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        for topic in ("written", "empty"):
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        for _ in range(10):
            producer.produce("written", b"x")
        assert producer.flush(20) == 0
        server.restart()
        server.restart()
        return {topic: epoch_ends(server, topic) for topic in ("written", "empty")}
    finally:
        server.kill()


def test_epochs_without_a_record(tmp_path: Path) -> None:
    theirs = live(ApacheKafka(tmp_path / "apache"))
    assert live(OttlaServer(tmp_path / "ottla")) == theirs
