"""Exchanges: requests about groups that Apache Kafka and Ottla must answer alike, at every version of an API.

On the differential tester's pair of connections, but in a list of their own: these belong to the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.protocol.primitives import Message
from tests.interop.differential.pair import Pair
from tests.interop.differential.scenario import Scenario

EXCHANGES: list[Scenario] = []
Step = Callable[[Pair, int], None]


def exchange(request: type[Message], *, versions: range | None = None) -> Callable[[Step], Step]:
    chosen_versions = versions or range(request.MIN_VERSION, request.MAX_VERSION + 1)

    def register(step: Step) -> Step:
        EXCHANGES.extend(Scenario(step.__name__, version, step, "groups") for version in chosen_versions)
        return step

    return register
