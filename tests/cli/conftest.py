"""One Ottla, one Apache Kafka, and a folder with the shims."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.verbs.shims import write_shims
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka

PROPERTIES = {"offsets.topic.num.partitions": "4", "auto.create.topics.enable": "true"}

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="session")
def shims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shims")
    write_shims(folder)
    return folder


@pytest.fixture(scope="module")
def ottla_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    server = OttlaServer(tmp_path_factory.mktemp("ottla"), properties={**PROPERTIES, **AUTHORIZER})
    server.start()
    try:
        yield server
    finally:
        server.stop()
        assert "Traceback" not in server.log_file.read_text(), server.log_tail(60)


@pytest.fixture(scope="module")
def apache_server(requires_apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    server = ApacheKafka(tmp_path_factory.mktemp("apache"), properties={**PROPERTIES, **AUTHORIZER})
    try:
        yield server.start()
    finally:
        server.kill()
