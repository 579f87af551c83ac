"""Every hand-picked scenario at every version, on Apache Kafka and on Ottla at once: the answers are equal."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.interop.differential import scenarios
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.scenario import SCENARIOS, Scenario
from tests.interop.differential.servers import two_servers

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]

for _module in pkgutil.iter_modules(scenarios.__path__):
    importlib.import_module(f"{scenarios.__name__}.{_module.name}")

FLAVOURS: dict[str, dict[str, str]] = {
    "default": {},
    "quiet": {  # for answers that list everything there is, and for what takes two folders
        "auto.create.topics.enable": "false",
        "log.dirs": "{dir}/data,{dir}/more",
    },
}
Servers = Callable[[str], tuple[Side, Side]]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    started: dict[str, tuple[Side, Side]] = {}
    with ExitStack() as stack:

        def get(flavour: str) -> tuple[Side, Side]:
            if flavour not in started:
                pair = two_servers(tmp_path_factory.mktemp(f"differential-{flavour}"), FLAVOURS[flavour])
                left, right = stack.enter_context(pair)
                started[flavour] = Side(left), Side(right)
            return started[flavour]

        yield get


@pytest.mark.parametrize("each", SCENARIOS, ids=lambda each: f"{each.name}-v{each.version}")
def test_same_answers(each: Scenario, servers: Servers) -> None:
    left, right = (Side(side.address) for side in servers(each.servers))
    pair = Pair(left, right, f"{each.name}.v{each.version}")
    each.run(pair, each.version)
    pair.check()
