"""Every event of a shard is rehearsed: decided once and dropped, as if the log had refused its records.

A dropped decision must leave no trace. The state of the machine, durable or not, is compared before and after, and so
are its deadlines. Then the event runs for real. Property tests run unchanged, with every event rehearsed.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from enum import Enum
from functools import cached_property
from typing import Any

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.machine import GroupMachine
from ottla.coordinator.groups.share.group import ShareGroup
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.runtime import Shard, ShardState
from ottla.coordinator.share.machine import ShareStateMachine
from ottla.coordinator.transactions.machine import TransactionMachine
from ottla.model.errors import KafkaError


class TraceOfARefusedEvent(AssertionError):
    pass


@contextmanager
def rehearsed() -> Iterator[Counter[str]]:
    """How many events were dropped and compared, by the kind of their machine."""
    run, submit = Shard.run, Shard.submit
    counts: Counter[str] = Counter()

    def rehearsed_run(shard: Any, operation: Callable[[Any], Any], producer: Any = None) -> None:
        rehearse(shard, lambda: operation(shard.machine), counts)
        run(shard, operation, producer)

    def rehearsed_submit(shard: Any, operation: Callable[[], Any]) -> bool:
        rehearse(shard, operation, counts)
        return submit(shard, operation)

    Shard.run, Shard.submit = rehearsed_run, rehearsed_submit  # type: ignore[method-assign,assignment]
    try:
        yield counts
    finally:
        Shard.run, Shard.submit = run, submit  # type: ignore[method-assign]


def rehearse(shard: Any, decide: Callable[[], Any], counts: Counter[str]) -> None:
    if shard.state is not ShardState.ACTIVE or not shard.partition.is_leader:
        return
    machine = shard.machine
    before, deadlines = state_of(machine), _deadlines(shard)
    with _classic_groups_kept(machine), _random_kept(machine):
        shard.deadlines.begin()
        try:
            dropped = bool(decide().records)
        except KafkaError:
            dropped = True  # refused before anything was written: nothing may have changed either
        shard.deadlines.restore()
    if not dropped:
        return  # there is nothing to refuse: what is not durable may change
    counts[type(machine).__name__] += 1
    traces = list(differences(before, state_of(machine))) + list(stale_hashes(machine))
    after = _deadlines(shard)
    traces += [f"deadline {key} is gone" for key in deadlines.keys() - after.keys()]
    traces += [f"deadline {key} is new" for key in after.keys() - deadlines.keys()]
    traces += [f"deadline {key} is earlier" for key in deadlines.keys() & after.keys() if after[key] < deadlines[key]]
    if traces:
        raise TraceOfARefusedEvent("a refused event left a trace:\n" + "\n".join(traces))


# Classic groups change while they decide, as in Kafka: `failed_appends.txt` shows what a refused event leaves of them.


@contextmanager
def _classic_groups_kept(machine: Any) -> Iterator[None]:
    if not isinstance(machine, GroupMachine):
        yield
        return
    groups = machine._context.groups
    copies = {name: _copied(group) for name, group in groups.items() if isinstance(group, ClassicGroup)}
    yield
    for name, group in copies.items():
        groups[name] = group


def _copied(group: ClassicGroup) -> ClassicGroup:
    waiters = [
        waiter
        for member in group.members.values()
        for waiter in (member.join_waiter, member.sync_waiter)
        if waiter is not None
    ]
    return copy.deepcopy(group, {id(waiter): waiter for waiter in waiters})


@contextmanager
def _random_kept(machine: Any) -> Iterator[None]:
    random = machine._context.random._random if isinstance(machine, GroupMachine) else None
    state = None if random is None else random.getstate()
    yield
    if random is not None:
        random.setstate(state)


def _deadlines(shard: Any) -> dict[Any, float]:
    classic = (
        {name for name, group in shard.machine.groups.items() if isinstance(group, ClassicGroup)}
        if isinstance(shard.machine, GroupMachine)
        else set()
    )
    entries = shard.deadlines._entries.items()
    return {key: entry.deadline for key, entry in entries if len(key) < 2 or key[1] not in classic}


# What follows from the rest, and may be set while an event decides: it must be right, whatever was refused.


def stale_hashes(machine: Any) -> Iterator[str]:
    """A group that does not look at its topics again has their hash in the log."""
    groups = machine.groups.values() if isinstance(machine, GroupMachine) else ()
    for group in groups:
        if isinstance(group, ClassicGroup) or group.refresh_due:
            continue
        topics = _topics(group)
        now = machine._context.topic_hashes.group_hash(topics, machine._context.image)
        if now != group.metadata_hash:
            yield f"{group.group_id} does not look at {sorted(topics)} again: {group.metadata_hash}, not {now}"
        if isinstance(group, StreamsGroup) and group.configured is not None and group.configured_hash != now:
            yield f"{group.group_id} is configured for other topics"


def _topics(group: Any) -> Collection[str]:
    if isinstance(group, ConsumerGroup):
        return group.subscriptions.topics()
    if isinstance(group, ShareGroup):
        return set(group.topics)
    return frozenset() if group.topology is None else group.topology.required_topics


# The state of a machine, as plain values

_DERIVED = ("refresh_due", "configured", "configured_hash", "endpoint_epoch")
"""The epoch of the endpoints is no state: each change of it makes members ask again, one too many does no harm."""


def state_of(machine: Any) -> Any:
    if isinstance(machine, GroupMachine):
        groups = {name: group for name, group in machine.groups.items() if not isinstance(group, ClassicGroup)}
        return plain({"groups": groups, "offsets": machine.offsets, "forgotten": machine._expiry._forgotten})
    if isinstance(machine, TransactionMachine):
        parts = {"ongoing": machine._expiry._ongoing, "missing": machine._completion._missing}
        return plain({"transactions": dict(machine.transactions), **parts})
    if isinstance(machine, ShareStateMachine):
        return plain({"states": machine.states, "snapshots": machine.snapshot_offsets})
    raise TypeError(type(machine))


def plain(value: Any) -> Any:
    """A copy in dicts, lists and texts that does not change with the original."""
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum) or callable(value):
        return value if not isinstance(value, Enum) else value.name
    if isinstance(value, Mapping):
        return {_name(key): plain(item) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(_name(item) for item in value)
    if isinstance(value, list | tuple | deque):
        return [plain(item) for item in value]
    cached = {
        name for kind in type(value).__mro__ for name, item in vars(kind).items() if isinstance(item, cached_property)
    }
    names = [name for name in getattr(value, "__dict__", {}) if name not in cached]
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return {name: plain(getattr(value, name)) for name in names if hasattr(value, name) and name not in _DERIVED}


def _name(key: Any) -> str:
    return repr(key)


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from differences(before.get(key), after.get(key), f"{path}.{key}")
    elif before != after:
        yield f"{path}: {before!r} -> {after!r}"
