"""Which peers are nodes of the cluster, by the hosts that the nodes have registered."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.metadata.delta import MetadataDelta
from ottla.server.cluster.node_addresses import NodeAddresses


def image_of(**hosts: str) -> Any:
    brokers = {
        int(name[1:]): SimpleNamespace(id=int(name[1:]), listeners={"L": SimpleNamespace(host=host, port=1)})
        for name, host in hosts.items()
    }
    return SimpleNamespace(brokers=brokers)


def test_addresses_follow_the_registrations() -> None:
    async def main() -> None:
        addresses = NodeAddresses(1)
        delta = MetadataDelta(brokers={2})
        image = image_of(n1="192.0.2.1", n2="192.0.2.2", n3="2001:db8:0:0:0:0:0:3", n4="127.0.0.1", n5="[2001:db8::5]")
        addresses.on_metadata(delta, image)
        present = [a for a in ("192.0.2.1", "192.0.2.2", "2001:db8::3", "127.0.0.1", "2001:db8::5") if a in addresses]
        assert present == ["192.0.2.2", "2001:db8::3", "2001:db8::5"]
        addresses.on_metadata(MetadataDelta(), image_of())
        assert "192.0.2.2" in addresses
        addresses.on_metadata(delta, image_of(n3="192.0.2.3"))
        assert "192.0.2.2" not in addresses
        assert "192.0.2.3" in addresses

    asyncio.run(main())


def test_names_are_resolved_beside_the_loop_and_bad_names_are_passed_over() -> None:
    async def main() -> None:
        asked: list[str] = []

        async def getaddrinfo(host: str, _port: object, **_more: object) -> list[Any]:
            asked.append(host)
            if host != "node.example":
                raise UnicodeError(host)
            return [(2, 1, 6, "", ("192.0.2.9", 0)), (10, 1, 6, "", ("::1", 0, 0, 0))]

        asyncio.get_running_loop().getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]
        addresses = NodeAddresses(1)
        addresses.on_metadata(MetadataDelta(reloaded=True), image_of(n2="node.example", n3="a" * 300))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert "192.0.2.9" in addresses
        assert sorted(asked) == ["a" * 300, "node.example"]
        assert "::1" not in addresses
        addresses.stop()

    asyncio.run(main())
