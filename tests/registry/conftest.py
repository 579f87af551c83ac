"""One log and one registry for the tests of a process; each test uses subjects of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.registry.instances import RegistryThread


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def registry(broker: Broker) -> Iterator[RegistryThread]:
    with RegistryThread(broker.bootstrap_servers, topic="_schemas_shared") as running:
        yield running


@pytest.fixture
def url(registry: RegistryThread) -> str:
    return registry.url


@pytest.fixture
def own_registry(broker: Broker, request: pytest.FixtureRequest) -> Iterator[RegistryThread]:
    """For tests that change what holds for everybody."""
    with RegistryThread(broker.bootstrap_servers, topic=f"_schemas_{abs(hash(request.node.nodeid))}") as running:
        yield running
