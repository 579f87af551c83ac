"""Consoles on a live Ottla and on Apache Kafka, each once for this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from ottla.testing import Broker
from tests.console.site import ServedConsole
from tests.support.apache_kafka import ApacheKafka


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="package")
def console(broker: Broker) -> Iterator[ServedConsole]:
    with ServedConsole(bootstrap_servers=broker.bootstrap_servers) as served:
        yield served


@pytest.fixture(scope="package")
def apache_console(apache_kafka: ApacheKafka) -> Iterator[ServedConsole]:
    with ServedConsole(bootstrap_servers=apache_kafka.bootstrap_servers) as served:
        yield served


@pytest.fixture(scope="package", params=["ottla", pytest.param("apache", marks=pytest.mark.interop)])
def any_console(request: pytest.FixtureRequest) -> ServedConsole:
    found: ServedConsole = request.getfixturevalue("console" if request.param == "ottla" else "apache_console")
    return found


@pytest.fixture(scope="package")
def new_name() -> Callable[[str], str]:
    numbers = itertools.count()
    return lambda stem: f"{stem}-{next(numbers)}"
