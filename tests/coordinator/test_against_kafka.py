"""Every exchange on Apache Kafka and on Ottla at once: the answers are equal, field by field."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator import (  # noqa: F401 - they register themselves
    consumer_exchanges,
    group_exchanges,
    migration_exchanges,
    offset_exchanges,
    share_exchanges,
    streams_exchanges,
)
from tests.coordinator.exchanges import EXCHANGES
from tests.coordinator.group_exchanges import SESSION_MS
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.scenario import Scenario
from tests.interop.differential.servers import two_servers

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]

ORDERED = sorted(EXCHANGES, key=lambda scenario: scenario.name != "list_groups")
"""The list of groups comes first, while there are no other groups in it."""
PROPERTIES = {
    f"group.{kind}.{limit}session.timeout.ms": str(SESSION_MS)
    for kind in ("consumer", "share", "streams")
    for limit in ("", "max.")
}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with two_servers(tmp_path_factory.mktemp("groups"), PROPERTIES) as (reference, candidate):
        yield Side(reference), Side(candidate)


@pytest.mark.parametrize("scenario", ORDERED, ids=lambda scenario: f"{scenario.name}-v{scenario.version}")
def test_same_answers(scenario: Scenario, sides: tuple[Side, Side]) -> None:
    reference, candidate = (Side(side.address, side.symbols) for side in sides)
    pair = Pair(reference, candidate, f"{scenario.name}.v{scenario.version}")
    scenario.run(pair, scenario.version)
    pair.check()
