"""Several connectors in one process, each in a thread of its own: one that fails is started again, the others go on.

A connector that fails reports the reason in one line, and is started again after a pause that doubles (1 s to 60 s).
After MAX_RESTARTS failures in a row, without a record in between, the connector stays failed. While nothing listens at
the brokers' address, one line for all connectors reports the outage, and a second line reports its end. Failures that
an outage causes do not count towards MAX_RESTARTS, even if a connector fails only after the outage has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import click

from ottla.cli.connectors.status import ConnectorStatus
from ottla.cli.options.reachability import refusals
from ottla.connect.worker import run_connector
from ottla.env.restarts import MAX_RESTARTS, pause_s

_LOOK_EVERY_S = 2.0
_LOOK_S = 0.1


def tell(text: str) -> None:
    click.echo(f"ottla: {text}", err=True)


class Outage:
    """Watches whether anything listens at the brokers' address, and reports each change."""

    def __init__(self, servers: str, stopping: threading.Event) -> None:
        self._servers = servers
        self._stopping = stopping
        self._away = threading.Event()
        self._looking = threading.Lock()
        self.begun = 0
        """The number of outages since the start, including the current one."""

    @property
    def goes_on(self) -> bool:
        """Whether the last look found the brokers away."""
        return self._away.is_set()

    def begin(self) -> None:
        threading.Thread(target=self._watch, name="outage", daemon=True).start()

    def is_now(self) -> bool:
        """Looks now: a connector may have failed a moment before the next regular look."""
        self._look()
        return self._away.is_set()

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        with self._looking:
            refused = refusals(self._servers)
            if refused and not self._away.is_set():
                self._away.set()
                self.begun += 1
                tell(f"{'; '.join(refused)}: the connectors wait until a broker answers")
            elif not refused and self._away.is_set():
                self._away.clear()
                tell(f"{self._servers} answers again: the connectors continue")


class ConnectorRun:
    def __init__(
        self,
        config: Mapping[str, str],
        client: Mapping[str, str],
        status: ConnectorStatus,
        stopping: Callable[[], bool],
    ) -> None:
        self._config = config
        self._client = client
        self._status = status
        self._stopping = stopping
        self.name = config.get("name", "")
        self.count = 0
        """Records since the start, over all attempts."""
        self.error = ""

    def once(self) -> None:
        try:
            self.count = self._attempt(once=True)
        except Exception as problem:  # noqa: BLE001 - the top of a thread: every error of a connector is reported
            self._fail(str(problem))
        else:
            self._status.end("finished")

    def until_stopped(self, outage: Outage) -> None:
        failures, reported_reason = 0, ""
        while not self._told_to_stop():
            before, outages = self.count, outage.begun
            try:
                self.count = before + self._attempt(once=False, before=before)
            except Exception as problem:  # noqa: BLE001 - the connector's supervisor reports every error and retries
                reason = str(problem)
            else:
                self._status.end("stopped")
                return
            by_outage = outage.is_now() or outage.begun != outages
            if self.count > before or by_outage:
                failures = 0
            if failures == MAX_RESTARTS:
                self._fail(f"{reason} (after {MAX_RESTARTS} restarts)")
                return
            failures += 1
            pause = pause_s(failures)
            self._status.restarting(reason)
            if reason != reported_reason and not by_outage:
                tell(f"{self.name}: {reason}; restarting in {pause:.0f} s")
                reported_reason = reason
            self._wait(pause, outage)
        self._status.end("stopped")

    def _told_to_stop(self) -> bool:
        return self._stopping() or self._status.asked_to_stop()

    def _attempt(self, *, once: bool, before: int = 0) -> int:
        def progress(count: int, lag: int | None) -> None:
            self.count = before + count
            self._status.progress(self.count, lag)

        return run_connector(self._config, self._client, once=once, stopping=self._told_to_stop, progress=progress)

    def _wait(self, pause: float, outage: Outage) -> None:
        """Waits for the pause, and for the end of an outage."""
        until = time.monotonic() + pause
        while not self._told_to_stop() and (time.monotonic() < until or outage.goes_on):
            time.sleep(_LOOK_S)

    def _fail(self, reason: str) -> None:
        self.error = reason
        self._status.end("failed", reason)
        tell(f"{self.name}: {reason}")
