"""The fixtures for pytest. Each worker of pytest-xdist has brokers of its own, on free ports, in temporary folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.pipeline import Pipeline
    from ottla.testing.broker import Broker
    from ottla.testing.step_test import StepTest


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


@pytest.fixture(scope="session")
def ottla_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small Spark session on this machine for the whole run. The JVM writes its log into the temporary folder."""
    from ottla.pipelines.session import spark

    log = tmp_path_factory.mktemp("ottla-spark") / "spark.log"
    session = spark("local[2]", low_footprint=True, log_file=str(log))
    yield session
    session.stop()


@pytest.fixture
def ottla_step(ottla_spark: SparkSession) -> Iterator[Callable[..., StepTest]]:
    """Makes a `StepTest` of a pipeline and the name of a step: records in, watermark advanced, rows out, without a broker."""
    from ottla.testing.step_test import StepTest

    with ExitStack() as tests:

        def make(pipeline: Pipeline, step: str | None = None) -> StepTest:
            return tests.enter_context(StepTest(ottla_spark, pipeline, step))

        yield make


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
