"""Modules that the first request of a kind would import on the loop: imported after the start, one a turn.

The first heartbeat of a process imported 60 modules in one turn, which took 205 ms on a busy machine (2026-11-18, 2 cores).
The node serves clients meanwhile, and its start takes no longer.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable

GROUP_MODULES = (
    "ottla.protocol.generated.consumer_group_heartbeat_request",
    "ottla.protocol.generated.consumer_group_heartbeat_response",
    "ottla.protocol.generated.describe_groups_response",
    "ottla.protocol.generated.txn_offset_commit_response",
    "ottla.protocol.generated.offset_delete_response",
    "ottla.coordinator.groups.offsets",
    "ottla.coordinator.groups.transactional_offsets",
    "ottla.coordinator.groups.classic.membership",
    "ottla.coordinator.groups.classic.sync",
    "ottla.coordinator.groups.listing",
    "ottla.coordinator.groups.expiry",
    "ottla.coordinator.groups.machine",
    "ottla.coordinator.groups.coordinator",
    "ottla.coordinator.groups.assigned_group",
    "ottla.coordinator.groups.consumer.group",
    "ottla.coordinator.groups.consumer.group_records",
    "ottla.coordinator.groups.consumer.migration",
    "ottla.coordinator.groups.consumer.rebalance",
    "ottla.coordinator.groups.consumer.heartbeat",
    "ottla.coordinator.groups.consumer.classic_members",
    "ottla.coordinator.groups.consumer.service",
    "ottla.coordinator.groups.consumer.replay",
    "ottla.coordinator.groups.consumer.validation",
    "ottla.broker.handlers.find_coordinator",
    "ottla.broker.handlers.join_group",
    "ottla.broker.handlers.sync_group",
    "ottla.broker.handlers.heartbeat",
    "ottla.broker.handlers.offset_commit",
    "ottla.broker.handlers.offset_fetch",
    "ottla.broker.handlers.consumer_group_heartbeat",
)
"""In an order in which each module finds most of what it needs. Share and streams groups are rare and stay for later."""


async def import_early(modules: Iterable[str] = GROUP_MODULES) -> None:
    for name in modules:
        importlib.import_module(name)
        await asyncio.sleep(0)
