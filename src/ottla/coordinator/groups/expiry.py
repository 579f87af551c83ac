"""The end of offsets and of groups: retention, deleted topics, and tombstones.

A group with members keeps the offsets of the topics it reads. Others expire offsets.retention.minutes after the
group became empty, or after their commit where the group never had members (KIP-211).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.offset_store import CommittedOffset, OffsetStore
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.records import OffsetCommitRecord
from ottla.env.logging import get_logger
from ottla.model.ids import ZERO_UUID, TopicPartition, Uuid

log = get_logger(__name__)

EXPIRY_KEY = ("expire",)
FORGET_KEY = ("forget",)
MAX_TOMBSTONES = 1_000
"""The limit of tombstones in one round; the next round follows at once, and other events run in between."""
_WAIT_MS = 1_000
"""The pause before the next look at a partition whose old offset must go while a transaction has a new offset."""


class GroupExpiry:
    def __init__(self, context: ShardContext, store: OffsetStore) -> None:
        self._context = context
        self._store = store
        self._loaded = False
        self._deleted_while_loading: dict[str, set[Uuid]] = {}
        self._forgotten: dict[tuple[str, TopicPartition], set[CommittedOffset]] = {}
        """The offsets of deleted topics whose tombstones are not in the log yet."""

    def on_loaded(self) -> None:
        self._loaded = True
        self.schedule()
        self.note_deleted(self._deleted_while_loading)
        self._deleted_while_loading = {}

    def schedule(self) -> None:
        self._context.timers.schedule(
            EXPIRY_KEY, self._context.settings.offsets_retention_check_interval_ms, self.expire
        )

    def expire(self) -> GroupDecision:
        """One round over all groups; schedules the next round."""
        draft = Draft()
        for group_id in list(self._context.groups):
            if len(draft.records) >= MAX_TOMBSTONES:
                break
            self._expire_group(self._context.groups[group_id], draft)
        if draft.records:
            log.info("offsets.expired", tombstones=len(draft.records))
        if len(draft.records) >= MAX_TOMBSTONES:
            self._context.timers.schedule(EXPIRY_KEY, 0, self.expire)
        else:
            self.schedule()
        return draft.decide(atomic=False)

    def note_deleted(self, topics: Mapping[str, Collection[Uuid]]) -> None:
        """Topics (name and ids) are gone: their offsets follow, with `forget`. Also while the shard is loading.

        Offsets of open transactions go too: with their commit they would become offsets of a new topic of that name.
        """
        if not self._loaded:
            for name, topic_ids in topics.items():
                self._deleted_while_loading.setdefault(name, set()).update(topic_ids)
            return
        for group_id, target, offset in self._store.offsets_of(topics):
            if offset.topic_id == ZERO_UUID or offset.topic_id in topics[target.topic]:
                self._forgotten.setdefault((group_id, target), set()).add(offset)
        if self._forgotten:
            self._context.timers.schedule(FORGET_KEY, 0, self.forget)

    def forget(self) -> GroupDecision:
        """One round of tombstones.

        A partition leaves the queue when its old offsets are gone, so that a refused round runs again. A tombstone
        removes all offsets of a partition. A partition therefore waits while a transaction has an offset of the new
        topic.
        """
        draft, waits = Draft(), False
        for key in list(self._forgotten):
            if len(draft.records) >= MAX_TOMBSTONES:
                break
            present, doomed = self._store.offsets_at(*key), self._forgotten[key]
            if present.isdisjoint(doomed):
                del self._forgotten[key]
            elif present <= doomed:
                group_id, target = key
                draft.records.append(OffsetCommitRecord(group_id, *target, None))
            else:
                waits = True
        if draft.records or waits:
            self._context.timers.schedule(FORGET_KEY, 0 if draft.records else _WAIT_MS, self.forget)
        return draft.decide(atomic=False)

    def _expire_group(self, group: Group, draft: Draft) -> None:
        remaining = self._expire_offsets(group, draft)
        if not remaining and group.expires and group.is_empty and not self._store.has_open_transactions(group.group_id):
            draft.records += group.tombstones()

    def _expire_offsets(self, group: Group, draft: Draft) -> int:
        """Append tombstones for expired offsets; returns how many offsets stay."""
        now_ms = self._context.clock.time_ms()
        remaining = 0
        for topic, offsets in self._store.topics(group.group_id).items():
            subscribed = group.is_subscribed_to(topic)
            for partition, offset in offsets.items():
                pending = self._store.is_pending(group.group_id, topic, partition)
                full = len(draft.records) >= MAX_TOMBSTONES
                if full or subscribed or pending or not self._is_expired(group, offset, now_ms):
                    remaining += 1
                else:
                    draft.records.append(OffsetCommitRecord(group.group_id, topic, partition, None))
        return remaining

    def _is_expired(self, group: Group, offset: CommittedOffset, now_ms: int) -> bool:
        since_ms = group.unused_since(offset)
        if since_ms is None:
            return False
        if offset.expire_timestamp_ms >= 0:
            # Committed with a retention time of its own (OffsetCommit up to v4).
            return now_ms >= offset.expire_timestamp_ms
        return now_ms - since_ms >= self._context.settings.offsets_retention_ms
