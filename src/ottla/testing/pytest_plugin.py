"""The fixtures for pytest. Each worker of pytest-xdist has brokers of its own, on free ports, in temporary folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Import Ottla's modules as outside of pytest.

    pytest rewrites the assertions of every package that has a plugin. Ottla has no assertions, and its modules would be
    parsed again in the thread of a node that runs already. pytest has no public call for that, so without the
    attribute this function does nothing.
    """
    marked = getattr(pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked -= {name for name in marked if name == "ottla" or name.startswith("pyspark_ottla")}


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What `Broker` is called with: `pytest.mark.parametrize("ottla_broker", [{"nodes": 3}], indirect=True)`."""
    return dict(getattr(request, "param", {}))


@pytest.fixture(scope="session")
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker for the session; `ottla_broker.bootstrap_servers` is what clients need."""
    from ottla.testing.broker import Broker

    with Broker(**_options(request)) as broker:
        yield broker


@pytest.fixture(scope="module")
def ottla_module_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for the tests of a module."""
    from ottla.testing.broker import Broker

    with Broker(**_options(request)) as broker:
        yield broker


@pytest.fixture
def ottla_own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for a single test: for faults of nodes and for time travel."""
    from ottla.testing.broker import Broker

    with Broker(**_options(request)) as broker:
        yield broker


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest, ottla_broker: Broker) -> str:
    """The name of a new topic with one partition, in the broker of the session."""
    return ottla_broker.topic(str(request.node.name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Shows the seed of faults that act by chance, when the test has failed."""
    report = yield
    if report.failed:
        for name in ("ottla_broker", "ottla_module_broker", "ottla_own_broker"):
            broker = getattr(item, "funcargs", {}).get(name)
            if broker is not None and broker.faults.by_chance:
                report.sections.append(("ottla.testing", broker.faults.report()))
    return report
