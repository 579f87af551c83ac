"""The keys of deleted topics, with encryption at rest: destroyed in every directory, and retried where that failed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ottla.log.log_directory import LogDirectory
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.log.erasure import KeyCustody


class TopicKeys:
    __slots__ = ("_directories", "_undestroyed", "custody")

    def __init__(self, directories: Callable[[], list[LogDirectory]]) -> None:
        """`directories`: those that are online now."""
        self._directories = directories
        self._undestroyed: list[tuple[LogDirectory, str]] = []
        """Topics that are gone and whose keys are not, because the disk refused."""
        self.custody: KeyCustody | None = None

    def destroy(self, topic: str, dead: Collection[str] | None) -> None:
        """Destroy the keys of the folders `dead`, or all keys of the topic.

        A directory that is full or without descriptors refuses (KAFKA_STORAGE_ERROR). If the whole topic is gone,
        `destroy_remaining` retries instead.
        """
        for log_dir in self._directories():
            if not self._destroyed(log_dir, topic, dead):
                if dead is not None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path} cannot destroy keys of {topic}")
                self._undestroyed.append((log_dir, topic))

    def destroy_remaining(self) -> None:
        """Not all keys of the topic: a namesake may have been created with them since, and keeps its files."""
        self._undestroyed = [entry for entry in self._undestroyed if not self._destroyed(*entry, ())]

    def _destroyed(self, log_dir: LogDirectory, topic: str, dead: Collection[str] | None) -> bool:
        if self.custody is None or log_dir.offline:
            return True
        try:
            self.custody.destroy_keys(log_dir.path, topic, dead)
        except OSError as error:
            log_dir.storage_error(error)
            return log_dir.offline
        return True

    def topics(self) -> set[str]:
        """Topics that have keys in some directory."""
        if self.custody is None:
            return set()
        return {topic for log_dir in self._directories() for topic in self.custody.keyed_topics(log_dir.path)}
