"""How long a failed login waits for its refusal: the wait grows with recent failures from the same address.

`connection.failed.authentication.delay.ms` is the wait after the first failures, as in Kafka; it doubles with every ten
failures of a minute. Credentials from an address with too many refusals under way are not checked, so that guessing on
many connections at once is no faster. Zero turns both limits off. An IPv6 network of 64 bits counts as one address,
because its owner has all of its addresses.
"""

from __future__ import annotations

from collections import OrderedDict

from ottla.security.hosts import network_of

WINDOW_MS = 60_000.0
DOUBLES_AFTER = 10
MAX_FACTOR = 100
MAX_UNDER_WAY = 32
MAX_ADDRESSES = 10_000


class _Address:
    __slots__ = ("failures", "since_ms", "under_way")

    def __init__(self, now_ms: float) -> None:
        self.failures = 0
        self.since_ms = now_ms
        self.under_way = 0


class FailedLogins:
    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def allows(self, host: str) -> bool:
        """Whether credentials from this address are checked now."""
        address = self._addresses.get(network_of(host))
        return address is None or address.under_way < MAX_UNDER_WAY

    def failed(self, host: str, base_ms: float, now_ms: float) -> float:
        """A login has failed; how long its refusal waits. `refused` must follow."""
        if base_ms <= 0:
            return base_ms
        address = self._addresses.get(network_of(host))
        if address is None:
            address = self._addresses[network_of(host)] = _Address(now_ms)
            if len(self._addresses) > MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        elif now_ms - address.since_ms >= WINDOW_MS:
            address.since_ms, address.failures = now_ms, address.failures // 2
        address.failures += 1
        address.under_way += 1
        return base_ms * min(1 << min(address.failures // DOUBLES_AFTER, 10), MAX_FACTOR)

    def refused(self, host: str) -> None:
        """The refusal has left, or the peer has."""
        address = self._addresses.get(network_of(host))
        if address is not None and address.under_way:
            address.under_way -= 1
