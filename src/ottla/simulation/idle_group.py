"""Offsets at the end of a seed: those of active groups are there, those of a group without members expire.

In a part of the seeds two hours pass at once for all nodes; offsets live for one hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.group_ledger import GroupLedger
from ottla.simulation.group_reader import GroupReader, GroupWorld
from ottla.simulation.invariants import Violation

if TYPE_CHECKING:
    from ottla.replication.fetch_session import Key

IDLE_GROUP = "idle"
PASSED_MS = 2 * 3_600_000
_TOPIC = "g1"
"""This topic is never deleted."""


class IdleGroup:
    def __init__(self, world: GroupWorld) -> None:
        self._world = world
        self._idle = GroupReader(world, GroupLedger(IDLE_GROUP), IDLE_GROUP)
        self.committed: set[Key] = set()
        self.final_offsets: dict[Key, int] | None = None
        """The offsets of the idle group at the end."""
        self.looked_at: set[str] = set()

    async def commit(self, is_over: Callable[[], bool]) -> None:
        """Once; the group never has a member."""
        await asyncio.sleep(3)
        while not self.committed and not is_over():
            try:
                keys = self._world.keys([_TOPIC])
                if keys:
                    rows = [OffsetCommitRequestPartition(key[1], 7) for key in keys]
                    topic = OffsetCommitRequestTopic(topic_id=keys[0][0], partitions=rows)
                    response = await self._idle.ask_coordinator(OffsetCommitRequest(IDLE_GROUP, topics=[topic]))
                    codes = [row.error_code for topic in response.topics for row in topic.partitions]
                    if not any(codes):
                        self.committed = set(keys)
                    self._idle.lost_coordinator(max(codes))
            except NodeUnavailable:
                pass
            await asyncio.sleep(0.3)

    async def look(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while self.final_offsets is None:
            self.final_offsets = await self._offsets(self._idle, sorted(self.committed))
            await asyncio.sleep(0.1)

    async def look_at(self, ledger: GroupLedger, keys: Sequence[Key], after_s: float) -> None:
        """An active group has its offsets, and none of them has gone back."""
        await asyncio.sleep(after_s)
        reader = GroupReader(self._world, ledger, "the last look")
        while ledger.group_id not in self.looked_at:
            floors = {key: ledger.floor(key) for key in keys}
            offsets = await self._offsets(reader, keys)
            if offsets is not None:
                for key, offset in offsets.items():
                    ledger.fetched(key, offset, floors[key])
                self.looked_at.add(ledger.group_id)
            await asyncio.sleep(0.1)

    async def _offsets(self, reader: GroupReader, keys: Sequence[Key]) -> dict[Key, int] | None:
        """None without a clear answer of the newest coordinator."""
        topics = [OffsetFetchRequestTopics(topic_id=key[0], partition_indexes=[key[1]]) for key in keys]
        group = OffsetFetchRequestGroup(reader.ledger.group_id, topics=topics)
        try:
            response = await reader.ask_coordinator(OffsetFetchRequest(groups=[group], require_stable=True))
        except NodeUnavailable:
            return None
        answer = response.groups[0]
        reader.lost_coordinator(answer.error_code)
        rows = {(topic.topic_id, row.partition_index): row for topic in answer.topics for row in topic.partitions}
        if answer.error_code or not reader.is_authority or any(row.error_code for row in rows.values()):
            return None
        return {key: row.committed_offset for key, row in rows.items()}

    def judge(self, ledger: GroupLedger) -> None:
        if ledger.group_id not in self.looked_at and not ledger.void:
            raise Violation(f"group {ledger.group_id}: its coordinator does not answer after healing")

    def judge_expiry(self) -> None:
        if self.final_offsets is None:
            raise Violation(f"group {IDLE_GROUP}: its coordinator does not answer after healing")
        remaining = {key: offset for key, offset in self.final_offsets.items() if offset >= 0}
        if remaining:
            raise Violation(f"group {IDLE_GROUP}: hours after its end the offsets {remaining} are there")
