"""The group coordinator of a node, put together on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.groups.share.persister import SharePersister
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Clock, RandomSource, Timers
    from ottla.replication.replicas import Replicas


def make_groups(
    config: BrokerConfig,
    clock: Clock,
    random: RandomSource,
    timers: Timers,
    replicas: Replicas,
    persister: Callable[[], SharePersister] | None = None,
) -> GroupCoordinator:
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.settings import GroupCoordinatorSettings

    return GroupCoordinator(GroupCoordinatorSettings.from_config(config), clock, random, timers, replicas, persister)
