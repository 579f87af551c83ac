"""The quorum's requests on real connections: one for fetches, which the leader holds back, one for everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.protocol.primitives import Message
from ottla.raft.config import Address
from ottla.raft.outbound import Outbound
from ottla.runtime.node_client import NodeClient, NodeUnavailable

if TYPE_CHECKING:
    from ottla.security.outgoing import PeerSecurity

log = get_logger(__name__)

_FETCHES = frozenset({"FetchRequest", "FetchSnapshotRequest"})
_BACKOFF_MAX_MS = 200.0

Respond = Callable[[Outbound, Message | None, bool], None]
"""The request, its response or None, and whether the other side refused the connection."""


class QuorumNetwork:
    def __init__(
        self,
        client_id: str,
        respond: Respond,
        on_bug: Callable[[BaseException], None],
        security: PeerSecurity | None = None,
    ) -> None:
        self._security = security
        self._client_id = client_id
        self._respond = respond
        self._on_bug = on_bug
        self._clients: dict[tuple[Address, bool], NodeClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, outbound: Outbound) -> None:
        task = asyncio.ensure_future(self._send(outbound))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    async def _send(self, outbound: Outbound) -> None:
        client = self._client(outbound.address, fetches=type(outbound.request).__name__ in _FETCHES)
        try:
            response = await client.send(outbound.request, timeout_ms=outbound.timeout_ms)
        except NodeUnavailable as error:
            log.debug("quorum_request.failed", request=type(outbound.request).__name__, error=str(error))
            self._respond(outbound, None, isinstance(error.__cause__, ConnectionRefusedError))
        else:
            self._respond(outbound, response, False)

    def _client(self, address: Address, *, fetches: bool) -> NodeClient:
        """One client per address and kind. Addresses come from the voter set and the settings, so there are few."""
        client = self._clients.get((address, fetches))
        if client is None:
            client = self._clients[address, fetches] = NodeClient(
                address.host,
                address.port,
                client_id=self._client_id,
                backoff_max_ms=_BACKOFF_MAX_MS,
                security=self._security,
            )
        return client

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_bug(error)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for client in self._clients.values():
            client.close()
        self._clients.clear()
