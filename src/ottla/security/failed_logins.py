"""How often an address may show a wrong password: `LIMIT` times in `WINDOW_S` seconds, then it waits.

Passwords that are not known yet are checked one at a time for each address. So parallel attempts count too, and an
address never occupies more than one thread. An IPv6 network of 64 bits counts as one address, because its owner has
all of its addresses. The table is bounded: the address that failed longest ago is dropped first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from ottla.security.hosts import network_of

LIMIT = 10
WINDOW_S = 60.0
MAX_ADDRESSES = 10_000
MAX_WAITING = 100


class TooManyFailures(Exception):
    """The address has failed too often, or too many of its logins wait."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many failed logins from this address")
        self.retry_after_s = max(1, int(retry_after_s + 0.999))


@dataclass(slots=True)
class _Address:
    used: float = 0.0
    """Failures that still count: each fades in WINDOW_S / LIMIT seconds."""
    at: float = 0.0
    waiting: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class WebLoginFailures:
    def __init__(
        self,
        *,
        limit: int = LIMIT,
        window_s: float = WINDOW_S,
        max_addresses: int = MAX_ADDRESSES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._fade_s = window_s / limit
        self._max = max_addresses
        self._monotonic = monotonic
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    @contextlib.asynccontextmanager
    async def attempt(self, address: str) -> AsyncIterator[None]:
        """Allows one login at a time for an address. Raises TooManyFailures if the address must wait."""
        entry = self._entry(address)
        if entry.waiting >= MAX_WAITING:
            raise TooManyFailures(self._fade_s)
        entry.waiting += 1
        try:
            async with entry.lock:
                self.check(address)
                yield
        finally:
            entry.waiting -= 1

    def check(self, address: str) -> None:
        entry = self._entry(address)
        self._fade(entry)
        if entry.used > self._limit - 1:
            raise TooManyFailures((entry.used - self._limit + 1) * self._fade_s)

    def failed(self, address: str) -> None:
        entry = self._entry(address)
        self._fade(entry)
        entry.used = min(entry.used + 1, float(self._limit))
        self._addresses.move_to_end(network_of(address))

    def __len__(self) -> int:
        return len(self._addresses)

    def _fade(self, entry: _Address) -> None:
        now = self._monotonic()
        entry.used = max(0.0, entry.used - (now - entry.at) / self._fade_s)
        entry.at = now

    def _entry(self, address: str) -> _Address:
        name = network_of(address)
        entry = self._addresses.get(name)
        if entry is None:
            entry = self._addresses[name] = _Address(at=self._monotonic())
            if len(self._addresses) > self._max:
                self._addresses.popitem(last=False)
        return entry
