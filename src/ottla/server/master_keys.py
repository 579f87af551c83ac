"""Follows the master keys of encryption at rest while the node runs: renewal in a thread, rotation on the loop.

Loaded only if something is encrypted. Every few seconds (`CHECK_MS`) each log directory takes over a new master key.
Without this check, a directory without new files would keep its keys wrapped by the old master key.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger

if TYPE_CHECKING:
    from ottla.security.encryption import EncryptedStorage
    from ottla.security.keystore import MasterKeys

log = get_logger(__name__)
CHECK_MS = 2_000


class MasterKeyFollower:
    def __init__(self, storage: EncryptedStorage) -> None:
        self._storage = storage
        self._task: asyncio.Task[None] | None = None

    @property
    def masters(self) -> MasterKeys:
        return self._storage.masters

    def start(self) -> None:
        if self._storage.masters.renewal is not None:
            self._storage.masters.renewal.start()
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        if self._storage.masters.renewal is not None:
            self._storage.masters.renewal.stop()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_MS / 1000)
            try:
                self._storage.follow_master_keys()
            except OSError as error:
                log.warning("master_keys.not_followed", error=str(error))
