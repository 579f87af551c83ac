"""Clients of other languages, whole journeys: kafkajs in CI, franz-go (a minute to build) in the soak."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka
from tests.support.foreign_clients import run_franz, run_kafkajs
from tests.support.kafka_jars import Unavailable

pytestmark = pytest.mark.interop
KAFKAJS = {
    "created": "true", "configured": "1000000", "written": "11", "group": "Stable", "read": "11", "aborted": "false",
    "offsets": "2", "ends": "3 15", "done": "true",
}  # fmt: skip
FRANZ = {
    "created": "1", "configured": "delete,compact", "written": "17", "read franz-classic 17": "false",
    "read franz-consumer 17": "false", "end": "21", "done": "",
}  # fmt: skip


def journey(run: Callable[[str], dict[str, str]], server: ApacheKafka) -> dict[str, str]:
    try:
        return run(server.bootstrap_servers)
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_kafkajs(ottla_server: OttlaServer) -> None:
    assert journey(run_kafkajs, ottla_server) == KAFKAJS


@pytest.mark.soak
def test_kafkajs_says_the_same_of_apache_kafka(apache_server: ApacheKafka) -> None:
    assert journey(run_kafkajs, apache_server) == KAFKAJS


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_franz_go(server: ApacheKafka) -> None:
    assert journey(run_franz, server) == FRANZ
