"""Fixtures for all tests: real Apache Kafka, its tools and kcat, each skipping with its reason where it cannot run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.apache_kafka import ApacheKafka
from tests.support.class_archives import spark_environment
from tests.support.home_watch import HomeWatch
from tests.support.kafka_jars import Unavailable, fetch
from tests.support.kafka_tools import Result, run_tool
from tests.support.kcat import kcat, run_kcat
from tests.support.sql_databases import postgresql_server, postgresql_uri, sql_uri

__all__ = ["postgresql_server", "postgresql_uri", "sql_uri"]

# A shell that starts a command with `&` lets it ignore Ctrl-C, and every child of it too: tests that press Ctrl-C would
# wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every Spark session of the tests and of their child processes starts its JVM on the class archive.
for name, value in spark_environment().items():
    os.environ.setdefault(name, value)

# Two shared cores stall now and then: pytest-timeout is the limit, not a per-example deadline. The same examples every
# time, so that a change is judged by what it changed; `--hypothesis-profile=explore` asks for others.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ottla", settings.get_profile("explore"), derandomize=True)
settings.load_profile("ottla")


@pytest.fixture(scope="session", autouse=True)
def state_of_pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pipelines and connectors that a test starts without a state folder use neither the home nor the working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTTLA_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def untouched_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that writes into the home fails the session: everything belongs into a test's own folder."""
    watch = HomeWatch(Path.home())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLCONFIGDIR", str(tmp_path_factory.mktemp("matplotlib")))  # pandas imports matplotlib
        yield
    assert watch.left() == set()


@pytest.fixture(scope="session")
def requires_apache_kafka() -> None:
    """For @pytest.mark.usefixtures: java and Apache Kafka's jars are here, or the test skips and says why."""
    try:
        fetch()
    except Unavailable as reason:
        pytest.skip(f"Apache Kafka: {reason}")


@pytest.fixture(scope="session")
def apache_kafka(requires_apache_kafka: None) -> Iterator[ApacheKafka]:
    """One real node for the whole run of this process; use topics of your own."""
    with ApacheKafka() as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka_tool(requires_apache_kafka: None) -> Callable[..., Result]:
    """`run_tool`, for tests that point Apache Kafka's tools at Ottla or at files."""
    return run_tool


@pytest.fixture(scope="session")
def kcat_tool() -> Callable[..., Result]:
    try:
        kcat()
    except Unavailable as reason:
        pytest.skip(str(reason))
    return run_kcat
