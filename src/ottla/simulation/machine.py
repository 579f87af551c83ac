"""A simulated machine for one life of a node, and the settings of a node whose life is short."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, cast

from ottla.runtime.descriptors import Descriptors
from ottla.server.machine import NodeMachine
from ottla.simulation.streams import ListeningSocket

if TYPE_CHECKING:
    from ottla.env.seams import Clock, RandomSource
    from ottla.simulation.disk import FakeDisk
    from ottla.simulation.loop import SimulatedLoop

SHORT_LIFE: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "400",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "1500",
    "request.timeout.ms": "3000",
    "log.flush.offset.checkpoint.interval.ms": "1500",
    "log.flush.start.offset.checkpoint.interval.ms": "1500",
    "replica.high.watermark.checkpoint.interval.ms": "1500",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1500",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "700",
    "log.cleaner.dedupe.buffer.size": "1048577",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2500",
    "group.consumer.min.session.timeout.ms": "2500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "100",
    "group.share.session.timeout.ms": "2500",
    "group.share.min.session.timeout.ms": "2500",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.assignment.interval.ms": "100",
    "group.share.initialize.retry.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.retention.minutes": "60",
    "offsets.retention.check.interval.ms": "1000",
    "ottla.busy.poll.us": "0",
}
"""Every timeout about a tenth of its default, so that 20 simulated seconds hold many faults. No busy polling: it goes by
the real clock, so that a seed would have another number of events each time."""


SEGMENT_FILES = 8
"""Segments that a node may keep open: fewer than its partitions have, so that files are closed and opened again."""


class NoHangups:
    """A simulated socket reports a reset by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        del loop

    def watch(self, fd: int, on_hangup: Callable[[], None]) -> None:
        """See the class."""

    def forget(self, fd: int) -> None:
        """See the class."""

    def close(self) -> None:
        """See the class."""


def simulated_machine(loop: SimulatedLoop, disk: FakeDisk, clock: Clock, random: RandomSource) -> NodeMachine:
    def bind(host: str, port: int) -> socket.socket:
        return cast("socket.socket", ListeningSocket(loop.network, loop, (host, port)))

    return NodeMachine(
        clock=clock,
        random=random,
        open_storage=lambda _config: disk,
        bind=bind,
        watch_loop=lambda _stall_s: None,
        watch_hangups=NoHangups,
        monotonic=loop.time,
        descriptors=lambda: Descriptors(segments=SEGMENT_FILES, connections=1_000),
        run_all=_in_turn,
    )


def _in_turn(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()
