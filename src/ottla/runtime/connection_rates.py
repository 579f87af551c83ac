"""Limits of new connections: per address (a client quota) and in total (max.connection.creation.rate)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.security.hosts import network_of
from ottla.security.quotas import Sensors

UNLIMITED = (1 << 31) - 1


class ConnectionRates:
    """One per node. `of_address` returns the quota of an address, or None; `counted_as` returns the name under which its
    connections count.
    """

    def __init__(
        self,
        of_address: Callable[[str], float | None],
        overall: Callable[[], int],
        counted_as: Callable[[str], str] = network_of,
        *,
        window_num: int = 11,
        window_ms: int = 1000,
    ) -> None:
        self._of_address = of_address
        self._overall = overall
        self._counted_as = counted_as
        self._sensors = Sensors(window_num, window_ms)

    def on_accepted(self, host: str, now_ms: float) -> float:
        """A connection has come; how long its address must be kept away (then it is refused), 0 when it may stay."""
        bound = self._of_address(host)
        if bound is None:
            return 0.0
        sensor = self._sensors.rate(("ip", self._counted_as(host)))
        sensor.record(1.0, now_ms)
        wait_ms = sensor.throttle_ms(bound, now_ms)
        if wait_ms > 0:
            sensor.record(-1.0, now_ms)
        return wait_ms

    def pause_ms(self, now_ms: float) -> float:
        """How long to accept no connection after this one."""
        bound = self._overall()
        if bound >= UNLIMITED:
            return 0.0
        sensor = self._sensors.rate(("all",))
        sensor.record(1.0, now_ms)
        return sensor.throttle_ms(max(bound, 1e-9), now_ms)
