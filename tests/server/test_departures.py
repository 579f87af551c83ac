"""A broker whose connection broke: fenced when nobody is there, also when its port closes a moment after."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.recently_fenced import RecentlyFenced
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.model.ids import ZERO_UUID
from ottla.runtime.node_client import reachable
from ottla.server.cluster.departures import Departures


async def looked_at(*, closes_after_s: float | None) -> list[tuple[int, int]]:
    """Who was fenced after the connection of broker 2 broke: nobody is in doubt after three seconds."""
    fenced: list[tuple[int, int]] = []
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    listener = SimpleNamespace(host="127.0.0.1", port=port)
    broker = SimpleNamespace(id=2, epoch=7, fenced=False, listeners={"PLAINTEXT": listener})
    image: Any = SimpleNamespace(brokers={2: broker})
    departures = Departures(
        1, image=lambda: image, active_epoch=lambda: 1, fence=lambda *who: fenced.append((who[0], who[1]))
    )
    departures.on_disconnected(2, 7)
    if closes_after_s is not None:
        await asyncio.sleep(closes_after_s)
        server.close()
    for _ in range(30 if closes_after_s is None else 300):
        if fenced:
            break
        await asyncio.sleep(0.1)
    departures.stop()
    server.close()
    return fenced


def test_a_port_that_closes_a_moment_after_the_connection_is_seen() -> None:
    assert asyncio.run(looked_at(closes_after_s=0.02)) == [(2, 7)]


def test_a_broker_that_only_lost_a_connection_is_left_alone() -> None:
    assert asyncio.run(looked_at(closes_after_s=None)) == []


def test_a_fenced_broker_stays_listed_for_a_moment() -> None:
    """So that a client moves its partitions before it forgets the broker."""
    recently_fenced = RecentlyFenced()

    def seen(*, fenced: bool, now_ms: float) -> Any:
        broker = BrokerRegistration(id=2, epoch=7, incarnation_id=ZERO_UUID, listeners={}, features={}, fenced=fenced)
        image = MetadataImage()
        image.brokers[2] = broker
        recently_fenced.on_metadata(MetadataDelta(brokers={2}), image, now_ms)
        return broker

    assert not recently_fenced.listed(seen(fenced=True, now_ms=0.0), 1.0), "it was never there"
    assert recently_fenced.listed(seen(fenced=False, now_ms=10.0), 20.0)
    gone = seen(fenced=True, now_ms=1_000.0)
    assert recently_fenced.listed(gone, 5_999.0)
    assert not recently_fenced.listed(gone, 6_000.0)
    assert recently_fenced.listed(seen(fenced=False, now_ms=9_000.0), 9_000.0)


@pytest.mark.parametrize("host", ["a" * 300, "x\0y", "a..b", ""])
def test_a_host_that_is_no_name_proves_nothing(host: str) -> None:
    """A broker may register any text as its host: the check of such a broker ended in a traceback."""
    assert asyncio.run(reachable(host, 1, 2_000)) in (True, False)
