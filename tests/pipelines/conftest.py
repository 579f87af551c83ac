"""One small Spark session per test process, and the two servers that a pipeline must not tell apart."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka
from tests.support.committed import await_decided

PROPERTIES = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from ottla.pipelines.session import spark as new_session

    session = new_session(
        "local[2]",
        low_footprint=True,
        log_file=str(tmp_path_factory.mktemp("spark") / "spark.log"),
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ottla_spark(spark: Any) -> Any:
    """The same session: a process has one."""
    return spark


@pytest.fixture(scope="session")
def ottla_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    server = OttlaServer(tmp_path_factory.mktemp("ottla"), properties=PROPERTIES)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def apache_server(requires_apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    server = ApacheKafka(tmp_path_factory.mktemp("apache"), properties=PROPERTIES)
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.interop)])
def server(request: pytest.FixtureRequest) -> ApacheKafka:
    found: ApacheKafka = request.getfixturevalue(f"{request.param}_server")
    return found


_numbers = itertools.count()


class Topics:
    """New topics on a server, and records into them."""

    def __init__(self, server: ApacheKafka) -> None:
        self.servers = server.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 3})

    def new(self, stem: str, partitions: int = 3, **config: str) -> str:
        name = f"{stem}-{os.getpid()}-{next(_numbers)}"
        self.make(name, partitions, **config)
        return name

    def make(self, name: str, partitions: int = 3, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self._admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(30)

    def delete(self, name: str) -> None:
        """Deletes a topic and waits until a topic of that name can be created."""
        self._admin.delete_topics([name])[name].result(30)
        deadline = time.monotonic() + 30
        while name in self._admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(0.05)

    def await_topic(self, name: str) -> None:
        """Waits until the broker's metadata has the topic."""
        deadline = time.monotonic() + 30
        while name not in self._admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline, f"{name} is not there"
            time.sleep(0.05)

    def send(self, topic: str, records: list[tuple]) -> None:
        """(key, value), with a timestamp in ms and headers behind them when wanted."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 3, "partitioner": "murmur2_random"})
        for key, value, *rest in records:
            timestamp, headers = (*rest, None, None)[:2]
            producer.produce(topic, value, key, timestamp=timestamp or 0, headers=headers)
            producer.poll(0)
        assert producer.flush(30) == 0

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **more}


@pytest.fixture
def topics(server: ApacheKafka) -> Topics:
    return Topics(server)


@pytest.fixture
def committed(topics: Topics) -> Callable[..., list[dict[str, Any]]]:
    """The committed records of a topic, read without Spark, once every transaction is decided."""
    from ottla.tables.query import topic_table

    def read(name: str, *, undecided: bool = False) -> list[dict[str, Any]]:
        if not undecided:
            await_decided(topics.servers, name)
        rows: list[dict[str, Any]] = topic_table(
            {"bootstrap.servers": topics.servers}, name, with_headers=True
        ).to_pylist()
        return rows

    return read
