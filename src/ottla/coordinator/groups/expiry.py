"""The end of offsets and of groups: retention, deleted topics, and tombstones.

A group with members keeps the offsets of the topics it reads. Others expire offsets.retention.minutes after the
group became empty, or after their commit where the group never had members (KIP-211).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.offset_store import CommittedOffset, OffsetStore
from ottla.coordinator.groups.shelf import Shelf
from ottla.coordinator.records import OffsetCommitRecord
from ottla.env.logging import get_logger
from ottla.model.ids import ZERO_UUID, TopicPartition, Uuid

log = get_logger(__name__)

EXPIRY_KEY = ("expire",)
FORGET_KEY = ("forget",)
MAX_TOMBSTONES = 1_000
"""In one round; more are left for one that follows at once, so that others are served in between."""


class Expiry:
    def __init__(self, shelf: Shelf, store: OffsetStore) -> None:
        self._shelf = shelf
        self._store = store
        self._forgotten: deque[tuple[str, TopicPartition, CommittedOffset]] = deque()

    def schedule(self) -> None:
        self._shelf.timers.schedule(EXPIRY_KEY, self._shelf.settings.offsets_retention_check_interval_ms, self.expire)

    def expire(self) -> GroupDecision:
        """One round over all groups; goes on by itself."""
        draft = Draft()
        for group_id in list(self._shelf.groups):
            if len(draft.records) >= MAX_TOMBSTONES:
                break
            self._expire_group(self._shelf.groups[group_id], draft)
        if draft.records:
            log.info("offsets.expired", tombstones=len(draft.records))
        if len(draft.records) >= MAX_TOMBSTONES:
            self._shelf.timers.schedule(EXPIRY_KEY, 0, self.expire)
        else:
            self.schedule()
        return draft.decide(atomic=False)

    def forget_topics(self, topics: Mapping[str, Uuid]) -> GroupDecision:
        """The offsets of deleted topics go, unless a new topic took the name: the first of them now, others follow."""
        for group_id in self._store.group_ids():
            for name, topic_id in topics.items():
                for partition, offset in self._store.topics(group_id).get(name, {}).items():
                    if offset.topic_id in (ZERO_UUID, topic_id):
                        self._forgotten.append((group_id, TopicPartition(name, partition), offset))
        return self._forget()

    def _forget(self) -> GroupDecision:
        """One round. They leave the queue when their tombstones are in the log, so that a round that could not be
        written comes again."""
        queue, draft = self._forgotten, Draft()
        while queue and not self._has(*queue[0]):
            queue.popleft()
        for group_id, target, offset in islice(queue, MAX_TOMBSTONES):
            if self._has(group_id, target, offset):
                draft.records.append(OffsetCommitRecord(group_id, *target, None))
        if queue:
            self._shelf.timers.schedule(FORGET_KEY, 0, self._forget)
        return draft.decide(atomic=False)

    def _has(self, group_id: str, target: TopicPartition, offset: CommittedOffset) -> bool:
        return self._store.get(group_id, *target) is offset

    def _expire_group(self, group: Group, draft: Draft) -> None:
        left = self._expire_offsets(group, draft)
        if not left and group.expires and group.is_empty and not self._store.has_open_transactions(group.group_id):
            draft.records += group.tombstones()

    def _expire_offsets(self, group: Group, draft: Draft) -> int:
        """Append tombstones for what has expired; how many offsets stay."""
        now_ms = self._shelf.clock.time_ms()
        left = 0
        for topic, offsets in self._store.topics(group.group_id).items():
            subscribed = group.is_subscribed_to(topic)
            for partition, offset in offsets.items():
                pending = self._store.is_pending(group.group_id, topic, partition)
                full = len(draft.records) >= MAX_TOMBSTONES
                if full or subscribed or pending or not self._is_expired(group, offset, now_ms):
                    left += 1
                else:
                    draft.records.append(OffsetCommitRecord(group.group_id, topic, partition, None))
        return left

    def _is_expired(self, group: Group, offset: CommittedOffset, now_ms: int) -> bool:
        since_ms = group.unused_since(offset)
        if since_ms is None:
            return False
        if offset.expire_timestamp_ms >= 0:
            # Committed with a retention time of its own (OffsetCommit up to v4).
            return now_ms >= offset.expire_timestamp_ms
        return now_ms - since_ms >= self._shelf.settings.offsets_retention_ms
