"""From Apache Kafka to Ottla and back: nodes of the other kind join, the old broker is drained under load, clients see
no error; the group's offsets move along.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.interop.ottla_server import OttlaServer, run_ottla
from tests.interop.test_mixed_cluster import member_of, wait_for
from tests.robustness.load import Reader, Sender
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_tools import TopicCommand, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


class GroupReader:
    """A consumer of a group, in a thread: how many records it has seen, and every error."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])
        self.seen: dict[tuple[int, int], int] = {}
        self.errors: list[str] = []
        self._running = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._running:
            for message in self._consumer.consume(500, 0.2):
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                else:
                    where = (message.partition(), message.offset())
                    self.seen[where] = self.seen.get(where, 0) + 1

    def close(self) -> None:
        self._running = False
        self._thread.join(30)
        self._consumer.close()


@pytest.mark.usefixtures("requires_apache_kafka")
@pytest.mark.parametrize("start", ["apache", pytest.param("ottla", marks=pytest.mark.soak)])
def test_the_old_broker_is_drained_under_load(tmp_path: Path, start: str) -> None:
    kinds = (ApacheKafka, OttlaServer) if start == "apache" else (OttlaServer, ApacheKafka)
    head = kinds[0](tmp_path / "old", properties={"offsets.topic.num.partitions": "4"})
    new = [member_of(head, kinds[1], tmp_path / f"new-{i}", i) for i in (2, 3)]
    sender = reader = None
    try:
        head.start()
        done = run_tool(
            TopicCommand, "--bootstrap-server", head.bootstrap_servers, "--create", "--topic", "t", "--partitions", "4"
        )
        assert done.returncode == 0, done.stderr
        sender = Sender("s", head.bootstrap_servers, "t", 4, idempotent=True, seed=1, in_flight=1)
        reader = GroupReader(head.bootstrap_servers, "t")
        sender.resume()
        wait_for(lambda: len(reader.seen) > 100, "the reader reads")
        for server in new:
            server.start()
        text = run_ottla("cluster", "drain", "1", "-b", new[0].bootstrap_servers, timeout=120)
        assert "holds no replicas" in text
        # A broker hears of what it holds no more a little later than others can tell.
        wait_for(lambda: not list(head.data_dir.glob("t-[0-9]")), "the replicas that moved away are deleted")
        mark = len(reader.seen)
        wait_for(lambda: len(reader.seen) > mark + 100, "the reader goes on with the new coordinator")
        sender.pause()
        assert sender.errors == []
        Reader(new[0].bootstrap_servers, [sender]).check()
        wait_for(lambda: len(reader.seen) == sum(sender.sent), "everything is read")
        reader.close()
        assert reader.errors == []
        group = Consumer({"bootstrap.servers": new[0].bootstrap_servers, "group.id": "readers"})
        from confluent_kafka import TopicPartition

        committed = group.committed([TopicPartition("t", p) for p in range(4)], timeout=30)
        group.close()
        assert [found.offset for found in committed] == sender.sent
    finally:
        if sender is not None:
            sender.close()
        if reader is not None:
            reader.close()
        for server in (*new, head):
            server.kill()
