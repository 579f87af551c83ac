"""A topic that is deleted and created again begins at 0, whatever the old one left in the checkpoint files."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.observation import read_all
from tests.interop.ottla_server import OttlaServer

TIMEOUT_S = 20


def test_a_killed_server_gives_a_new_topic_nothing_of_its_namesake(tmp_path: Path) -> None:
    """The log start offset of the old topic lies beyond the end of the new one."""

    server = OttlaServer(tmp_path).start()
    try:
        _fill(server, "again", 100)
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        at = TopicPartition("again", 0, 90)
        admin.delete_records([at])[TopicPartition("again", 0)].result(TIMEOUT_S)
        server.restart()  # writes the checkpoint files
        server.kill()
        server.start()
        admin.delete_topics(["again"])["again"].result(TIMEOUT_S)
        _fill(server, "again", 10)
        server.kill()
        server.start()
        found = read_all(server.bootstrap_servers, [("again", 0)])["again", 0]
        assert [record.offset for record in found] == list(range(10))
    finally:
        server.kill()


def _fill(server: OttlaServer, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(TIMEOUT_S) == 0
