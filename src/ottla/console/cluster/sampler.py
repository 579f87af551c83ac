"""Samples the cluster every few seconds, so that pages answer from the last snapshot and not from calls to brokers.

A sample that fails keeps the last snapshot and stores the reason; pages show both. A page that has just changed
something asks for a new sample.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from ottla.client.group_lag import ReadLag, UnreadTimes
from ottla.console.cluster.collect import collect
from ottla.console.cluster.gateway import Gateway, until_it_shows
from ottla.console.cluster.history import History
from ottla.console.cluster.snapshot import ClusterSnapshot
from ottla.console.errors import ConsoleError
from ottla.runtime.shared_futures import outcome_of

_SLOW_S = 1.0


class Sampler:
    def __init__(self, gateway: Gateway, interval_s: float) -> None:
        self._gateway = gateway
        self._interval_s = interval_s
        self._looking: asyncio.Future[ClusterSnapshot] | None = None
        self._task: asyncio.Task[None] | None = None
        self.history = History()
        self.snapshot: ClusterSnapshot | None = None
        self.lags: dict[str, ReadLag] = {}
        """Of every group in the snapshot: worked out once a look, however many pages ask."""
        self.error = ""
        self._seen_at = 0.0
        self._unread = UnreadTimes()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def current(self, *, max_age_s: float | None = None) -> ClusterSnapshot:
        """The last snapshot unless it is too old. Raises ConsoleError if there is no snapshot and sampling fails.

        If the cluster answers slowly (a broker has just died), the page gets the old snapshot and does not wait.
        """
        allowed = self._interval_s * 3 if max_age_s is None else max_age_s
        snapshot = self.snapshot
        if snapshot is not None and (time.monotonic() - self._seen_at <= allowed or self.error):
            return snapshot
        if snapshot is None or max_age_s is not None:
            return await self._next()
        try:
            async with asyncio.timeout(_SLOW_S):
                return await self._next()
        except TimeoutError:
            return snapshot

    async def look(self) -> ClusterSnapshot:
        """A sample that starts after this call: a sample under way may have missed a change that was just made."""
        if self._looking is not None and not self._looking.done():
            with contextlib.suppress(ConsoleError):
                await outcome_of(self._looking)
        return await self._next()

    async def _next(self) -> ClusterSnapshot:
        """The sample that is under way, or a new sample; concurrent callers share it."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        return await outcome_of(self._looking)

    async def look_until(self, seen: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
        """Fresh looks until a change shows, or for a few seconds."""
        return await until_it_shows(self.look, seen)

    async def _look(self) -> ClusterSnapshot:
        try:
            snapshot = await self._gateway.ask(lambda cluster: collect(cluster, self._unread))
        except ConsoleError as error:
            self.error = error.message
            raise
        self.snapshot, self.error, self._seen_at = snapshot, "", time.monotonic()
        self.history.add(snapshot)
        self.lags = self.history.lags(snapshot)
        return snapshot

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(ConsoleError):  # kept in `error`, shown on every page
                await self._next()
            await asyncio.sleep(self._interval_s)
