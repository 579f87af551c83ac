"""`@scenario(SomeRequest)` makes a function a test that runs once for each version of that request.

@scenario(DeleteTopicsRequest)
def delete_topics_unknown(pair: Pair, version: int) -> None:
    pair.send(DeleteTopicsRequest(topic_names=[pair.name("nothing")], timeout_ms=5000), version)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.protocol.generated.index import APIS
from ottla.protocol.primitives import Message
from tests.interop.differential.pair import Pair

Step = Callable[[Pair, int], None]


class Scenario(NamedTuple):
    name: str
    version: int
    run: Step
    servers: str


SCENARIOS: list[Scenario] = []


def scenario(
    request: type[Message], *, servers: str = "default", versions: range | None = None
) -> Callable[[Step], Step]:
    """`servers` names a configuration of FLAVOURS in test_differential.py; `versions` narrows."""
    entry = APIS[request.API_KEY]
    last = entry.max_version - entry.latest_unstable
    wanted = versions or range(entry.min_version, last + 1)

    def register(step: Step) -> Step:
        SCENARIOS.extend(Scenario(step.__name__, version, step, servers) for version in wanted)
        return step

    return register
