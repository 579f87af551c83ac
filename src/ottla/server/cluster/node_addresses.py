"""The addresses of the cluster's other nodes, from the metadata: their connections may use the reserve of sockets.

On a listener for brokers and clients nothing else distinguishes a broker before its login. An address that is written as
a number counts at once, a host name when the name server has answered. Loopback addresses never count: on a machine with
several nodes, every client has such an address.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId
from ottla.security.hosts import is_address, is_loopback, plain_address

_MAX_HOSTS = 10_000


class NodeAddresses:
    def __init__(self, own_id: NodeId) -> None:
        self._own_id = own_id
        self._hosts: frozenset[str] = frozenset()
        self._by_host: dict[str, frozenset[str]] = {}
        self._addresses: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, address: str) -> bool:
        return address in self._addresses

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not delta.reloaded and not delta.brokers:
            return
        nodes = (broker for broker in image.brokers.values() if broker.id != self._own_id)
        hosts = {listener.host for node in nodes for listener in node.listeners.values() if listener.host}
        self._hosts = frozenset(sorted(hosts)[:_MAX_HOSTS])
        self._by_host = {host: addresses for host, addresses in self._by_host.items() if host in self._hosts}
        for host in self._hosts - set(self._by_host):
            if is_address(plain_address(host)):
                self._by_host[host] = _remote([host])
        self._combine()
        if self._hosts - set(self._by_host) and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._resolve())

    async def _resolve(self) -> None:
        """A name without an answer stays without an address until the metadata of brokers changes again."""
        loop = asyncio.get_running_loop()
        for host in sorted(self._hosts - set(self._by_host)):
            try:
                answers = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except (OSError, ValueError):
                continue
            self._by_host[host] = _remote(str(answer[4][0]) for answer in answers)
        self._combine()

    def _combine(self) -> None:
        self._addresses = frozenset().union(*(self._by_host[host] for host in self._hosts & set(self._by_host)))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _remote(addresses: Iterable[str]) -> frozenset[str]:
    return frozenset(address for address in map(plain_address, addresses) if not is_loopback(address))
