"""Removes deleted topics from share groups.

The ids stay queued until the records are in the log. No member can own partitions of a deleted topic. A group that
still had such a topic would therefore compute a new assignment with every heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.share.group import ShareGroup
from ottla.coordinator.groups.share.initialization import forgotten_record
from ottla.model.ids import Uuid

FORGET_KEY = ("forget shared topics",)


class ShareForgetting:
    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._deleted: set[Uuid] = set()

    def note_deleted(self, topic_ids: Iterable[Uuid]) -> None:
        """Also while the shard is loading."""
        self._deleted.update(topic_ids)
        self._schedule()

    def on_loaded(self) -> None:
        if self._deleted:
            self._schedule()

    def _schedule(self) -> None:
        self._context.timers.schedule(FORGET_KEY, 0, self.forget)

    def forget(self) -> GroupDecision:
        """Runs until no group has the topics: a refused record is made again."""
        draft = Draft()
        for group in self._context.groups.values():
            record = forgotten_record(group, self._deleted, self._context) if isinstance(group, ShareGroup) else None
            if record is not None:
                draft.records.append(record)
        if draft.records:
            self._schedule()
        else:
            self._deleted.clear()
        return draft.decide(atomic=False)
