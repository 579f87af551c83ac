"""Consoles on a live Ottla and on Apache Kafka, each once for this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from ottla.console.cluster import gateway
from ottla.testing import Broker
from tests.console.living import living_console
from tests.console.scene import Scene
from tests.console.site import ServedConsole
from tests.support.apache_kafka import ApacheKafka
from tests.support.browser import CHROMIUM_FLAGS, chromium
from tests.support.kafka_jars import Unavailable


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    """Pages wait for a change to show for 4 s, which is what a person has; a busy machine may be slower."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway, "_PATIENCE_S", 30.0)
        yield


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


@pytest.fixture(scope="session")
def new_name() -> Callable[[str], str]:
    """Of the whole process: a module or a package may be left and come to again, and Apache Kafka's node stays."""
    numbers = itertools.count()
    return lambda stem: f"{stem}-{next(numbers)}"


@pytest.fixture(scope="package")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    """A console on the whole scene: lineage, rules, schemas, pipelines, groups with members, an open transaction."""
    with living_console(tmp_path_factory.mktemp("living")) as served:
        yield served


@pytest.fixture(scope="package")
def apache_living(apache_kafka: ApacheKafka) -> Iterator[ServedConsole]:
    """The same scene on Apache Kafka, as far as it can be had there without an authorizer."""
    with closing(Scene(apache_kafka.bootstrap_servers)) as scene:
        scene.fill()
        with ServedConsole(bootstrap_servers=apache_kafka.bootstrap_servers) as served:
            yield served


@pytest.fixture(scope="package")
def apache_ruled(requires_apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    """A console on an Apache Kafka with an authorizer: what the scene's rules and users need."""
    del requires_apache_kafka
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with (
        ApacheKafka(tmp_path_factory.mktemp("ruled") / "kafka", properties=properties) as kafka,
        ServedConsole(bootstrap_servers=kafka.bootstrap_servers) as served,
    ):
        yield served


@pytest.fixture(scope="package", params=["ottla", "apache"])
def stage(request: pytest.FixtureRequest) -> ServedConsole:
    """Where actions are tried: on Ottla and on Apache Kafka, both with an authorizer."""
    found: ServedConsole = request.getfixturevalue("living" if request.param == "ottla" else "apache_ruled")
    return found


@pytest.fixture
def stage_page(open_page: Callable[..., Any], stage: ServedConsole) -> Any:
    return open_page(stage)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    try:
        path = chromium()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Pages of a console; scripts and policies must not complain on any of them."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def opened(console: ServedConsole, **options: Any) -> Any:
        context = browser.new_context(base_url=console.url, **{"viewport": {"width": 1280, "height": 850}, **options})
        context.set_default_timeout(40_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield opened
    for context in contexts:
        context.close()
    # A page that answers 4xx on purpose is reported as a failed load.
    assert [text for text in complaints if "Failed to load resource" not in text] == []


@pytest.fixture
def page(open_page: Callable[..., Any], console: ServedConsole) -> Any:
    return open_page(console)


@pytest.fixture
def living_page(open_page: Callable[..., Any], living: ServedConsole) -> Any:
    return open_page(living)
