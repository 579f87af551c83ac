"""The servers that all files here share: one Ottla in a process of its own, and the session's Apache Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka

PROPERTIES = {
    "offsets.topic.num.partitions": "4",  # 50 would only cost time
    "num.partitions": "2",
    "log.retention.ms": "-1",  # the records are from 2023: nobody deletes them while a test reads
    "auto.create.topics.enable": "true",
}


@pytest.fixture(scope="session")
def ottla_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    """One node for all tests here; its log must stay free of tracebacks."""
    server = OttlaServer(tmp_path_factory.mktemp("ottla"), properties=PROPERTIES)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        assert "Traceback" not in server.log_file.read_text(), server.log_tail(60)


@pytest.fixture(scope="session")
def apache_server(requires_apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka with the same settings, to compare with."""
    server = ApacheKafka(tmp_path_factory.mktemp("apache"), properties=PROPERTIES)
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture(scope="session", params=["ottla", "apache"])
def server(request: pytest.FixtureRequest) -> ApacheKafka:
    """Both, one after the other: what a test expects of Ottla is what Apache Kafka does."""
    found: ApacheKafka = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture(scope="session")
def new_name() -> Callable[[str], str]:
    """A name that no other test uses."""
    numbers = itertools.count()
    return lambda stem: f"{stem}-{next(numbers)}"
