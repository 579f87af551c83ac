"""A file system that ignores case (macOS): two topics that differ in case alone never share a folder.

On such a file system the second topic would write into the segments of the first, and both would be lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.ignoring_case import IgnoringCase

from ottla.env.config import TopicConfig
from ottla.log.log_store import LogStore
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskStorage
from ottla.server.formatting import storage
from ottla.testing import Broker

from .partition_files import NOW, append, read_all

UPPER, LOWER = TopicPartition("Orders", 0), TopicPartition("orders", 0)
CONFIG = TopicConfig()


def opened(disk: DiskStorage, *paths: Path) -> LogStore:
    store = LogStore(disk, SystemRandom(), [str(path) for path in paths])
    store.open_directories()
    store.load(lambda _topic: CONFIG, NOW)
    return store


def test_the_second_name_is_refused_and_the_first_keeps_its_records(tmp_path: Path) -> None:
    store = opened(IgnoringCase(), tmp_path)
    first = store.create(UPPER, Uuid(b"u" * 16), CONFIG, NOW)
    append(first, b"kept", leader_epoch=0)
    with pytest.raises(KafkaError, match="does not distinguish orders-0 from Orders-0") as refused:
        store.create(LOWER, Uuid(b"l" * 16), CONFIG, NOW)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not store.directories[0].offline, "nothing is wrong with the disk"
    assert store.get(LOWER) is None
    store.shutdown(NOW)
    again = opened(IgnoringCase(), tmp_path)
    found = again.get(UPPER)
    assert found is not None
    assert found.log_end_offset == 1
    assert found.topic_id == Uuid(b"u" * 16)
    assert read_all(found)
    again.delete(UPPER, NOW)
    assert again.create(LOWER, Uuid(b"l" * 16), CONFIG, NOW).log_end_offset == 0, "the name is free again"
    again.shutdown(NOW)


def test_a_move_does_not_end_in_the_folder_of_another_topic(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    store = opened(IgnoringCase(), here, there)
    store.create(UPPER, Uuid(b"u" * 16), CONFIG, NOW, directory=str(there))
    store.create(LOWER, Uuid(b"l" * 16), CONFIG, NOW, directory=str(here))
    with pytest.raises(KafkaError, match="does not distinguish orders-0 from Orders-0"):
        store.create_future(LOWER, str(there), NOW)
    assert [path.name for path in there.glob("*-future")] == []
    store.shutdown(NOW)


def test_other_file_systems_have_both(tmp_path: Path) -> None:
    if (tmp_path / "UPPER").mkdir() or (tmp_path / "upper").exists():
        pytest.skip("this file system ignores case")
    store = opened(DiskStorage(), tmp_path / "data")
    store.create(UPPER, Uuid(b"u" * 16), CONFIG, NOW)
    store.create(LOWER, Uuid(b"l" * 16), CONFIG, NOW)
    store.shutdown(NOW)


def test_a_client_is_refused_in_clear_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "DiskStorage", IgnoringCase)
    with Broker(directory=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("Orders", 1, 1)])["Orders"].result(30)
        for names in (["orders"], ["ORDERS"]):
            for answer in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
                with pytest.raises(Exception, match="collides with existing topic: Orders: the file system") as refused:
                    answer.result(30)
                assert refused.value.args[0].code() == ErrorCode.INVALID_TOPIC_EXCEPTION
        pair = admin.create_topics([NewTopic("Pair", 1, 1), NewTopic("pair", 1, 1)])
        assert sorted(answer.exception(30) is None for answer in pair.values()) == [False, True]
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("Orders", b"one")
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["Orders"])
        record = consumer.poll(30)
        assert record is not None
        assert record.value() == b"one"
        consumer.close()
    assert sorted(path.name for path in (tmp_path / "data").glob("*rders-0")) == ["Orders-0"]
