"""Fetches master keys from their source again while the node runs: in its own thread, with bounded pauses after
failures.

The last keys stay in memory while the source is unavailable. The thread only fetches and parses. The owner of the keys
calls `take` on its own thread to get the newest keys. The first failure and the first success after it are logged;
`failures` counts in between, for a metric.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.security.key_sources import KeySource, KeyStoreError

if TYPE_CHECKING:
    from ottla.security.keystore import MasterKey

log = get_logger(__name__)
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class KeyRenewal:
    def __init__(self, source: KeySource, refresh_s: float) -> None:
        self._source = source
        self._refresh_s = refresh_s
        self._newest: list[MasterKey] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.failures = 0
        """Since the last success."""
        self.renewed_at = time.monotonic()

    @property
    def age_s(self) -> float:
        """Seconds since the last successful fetch."""
        return time.monotonic() - self.renewed_at

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="master-keys", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def take(self) -> list[MasterKey] | None:
        """The newest keys that were fetched since the last call; None if there are none."""
        newest, self._newest = self._newest, None
        return newest

    def _run(self) -> None:
        pause_s = self._source.wait_s(self._refresh_s)
        while not self._stopped.wait(pause_s):
            pause_s = self._ask()

    def _ask(self) -> float:
        """Fetch once; returns the seconds to wait until the next fetch."""
        from ottla.security.keystore import parse_master_keys

        try:
            keys = parse_master_keys(self._source.fetch())
        except KeyStoreError as error:
            self.failures += 1
            if self.failures == 1:
                log.warning("master_keys.not_loaded", error=str(error), note="the keys in memory stay in use")
            pause_s: float = FIRST_PAUSE_S * 2 ** min(self.failures - 1, 10)
            return min(pause_s, LONGEST_PAUSE_S)
        if self.failures:
            log.info("master_keys.recovered", failures=self.failures)
        self.failures, self.renewed_at, self._newest = 0, time.monotonic(), keys
        return self._source.wait_s(self._refresh_s)
