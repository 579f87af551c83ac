"""Until one server has done all that follows from what it has acknowledged: for tests that speak to it by real clients."""

from __future__ import annotations

import time
from pathlib import Path

from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.interop.differential.pair import PATIENCE, Side, await_leaders, settle
from tests.interop.differential.servers import Address
from tests.interop.differential.transactional import await_markers


def await_settled(bootstrap_servers: str) -> None:
    """Topics, partitions and settings are everywhere what the controller said, and no transaction waits for its end."""
    sides = (_side(bootstrap_servers),)
    settle(sides)
    await_markers(sides)


def await_ended(bootstrap_servers: str) -> None:
    """No transaction waits for its markers: what was committed is visible."""
    await_markers((_side(bootstrap_servers),))


def await_led(bootstrap_servers: str, topic: str, partitions: int = 1) -> None:
    """The topic takes requests: a real client would try again, raw requests would not."""
    await_leaders((_side(bootstrap_servers),), topic, partitions)


def await_coordinator(bootstrap_servers: str, group: str) -> None:
    """The group's coordinator has loaded it. Apache Kafka tells who it will be before it is; librdkafka does not commit
    a second time where it says NOT_COORDINATOR."""
    deadline = time.monotonic() + PATIENCE
    while not _coordinated(bootstrap_servers, group):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody coordinates {group}")
        time.sleep(0.02)


def _coordinated(bootstrap_servers: str, group: str) -> bool:
    offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    try:
        asked = FindCoordinatorRequest(coordinator_keys=[group])
        found = _side(bootstrap_servers.split(",", maxsplit=1)[0]).ask(asked, 4).coordinators[0]
        return not found.error_code and not _side(f":{found.port}").ask(offsets, 8).groups[0].error_code
    except OSError:
        return False


def _side(bootstrap_servers: str) -> Side:
    return Side(Address("server", int(bootstrap_servers.rpartition(":")[2]), 0, Path(), Path()))
