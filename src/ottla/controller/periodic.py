"""Periodic duties of the active controller: it gives leadership back to preferred replicas, runs unclean elections for
topics that allow them, and removes expired delegation tokens. Each duty is a function that returns records; `Periodic`
decides which duty is due.

Leadership also goes back soon after a preferred replica is in sync again. If one node leads every partition, all of
them stop with that node. Clients that have no other leader notice a hanging node only by their own timeout.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.delegation_tokens import expired_tokens
from ottla.controller.leadership import all_partitions, leader_and_isr_updates, leaderless_partitions
from ottla.controller.outcome import MAX_RECORDS_PER_USER_OP
from ottla.controller.partition_change import Election, partition_change
from ottla.controller.state import ControllerState
from ottla.model.ids import NodeId
from ottla.protocol.primitives import Message

SOON_MS = 1_000
"""Partitions come into sync one after the other. This delay balances them together."""
LATELY_MS = 3_000
"""Longer than a heartbeat's interval. A broker without a heartbeat for this time may hang, and gets no leadership."""


def balance_leaders(state: ControllerState) -> list[Message]:
    """Elect preferred replicas that can lead and do not. Partitions above the limit follow in the next run."""
    return _balance(state, state.active)


def balance_soon(state: ControllerState) -> list[Message]:
    """The same for brokers with a recent heartbeat. Sets `state.balance_wanted_ms` if there is more to do."""
    silent: set[NodeId] = set()
    state.balance_wanted_ms = None

    def well(broker_id: NodeId) -> bool:
        if not state.active(broker_id):
            return False
        if not state.heard_within(broker_id, LATELY_MS):
            silent.add(broker_id)
        return broker_id not in silent

    records = _balance(state, well)
    if silent or len(records) >= MAX_RECORDS_PER_USER_OP:
        state.want_balance()
    return records


def _balance(state: ControllerState, may_lead: Callable[[NodeId], bool]) -> list[Message]:
    records: list[Message] = []
    for topic, index, partition in all_partitions(state):
        if partition.has_preferred_leader or not may_lead(partition.replicas[0]):
            continue
        change = partition_change(state, topic.name, topic.id, index, partition)
        change.election = Election.PREFERRED
        record = change.build()
        if record is not None:
            records.append(record)
            if len(records) >= MAX_RECORDS_PER_USER_OP:
                break
    return records


def elect_uncleanly(state: ControllerState) -> list[Message]:
    """Elect leaders for partitions without one, if unclean.leader.election.enable allows it. Data may be lost."""
    electable = [entry for entry in leaderless_partitions(state) if state.unclean_election_enabled(entry[0].name)]
    return list(leader_and_isr_updates(state, electable[:MAX_RECORDS_PER_USER_OP]))


class Periodic:
    """Only `balance_soon` is due before an interval has passed since this controller became active."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        settings = state.settings
        self._duties: list[tuple[int, Callable[[ControllerState], list[Message]]]] = [
            (settings.leader_balance_interval_ms, balance_leaders),
            (settings.unclean_election_interval_ms, elect_uncleanly),
            (settings.token_expiry_interval_ms, expired_tokens),
        ]
        self._last_ms: dict[int, float] = {}

    def restart(self) -> None:
        now = self._state.clock.monotonic_ms()
        self._last_ms = dict.fromkeys(range(len(self._duties)), now)
        self._state.balance_wanted_ms = now

    def due(self) -> list[Message]:
        """The records of the first duty that is due."""
        state = self._state
        now = state.clock.monotonic_ms()
        requested_ms = state.balance_wanted_ms
        if requested_ms is not None and now - requested_ms >= SOON_MS and state.settings.leader_balance_interval_ms > 0:
            records = balance_soon(state)
            if records:
                return records
        for index, (interval_ms, duty) in enumerate(self._duties):
            if interval_ms > 0 and now - self._last_ms.get(index, now) >= interval_ms:
                self._last_ms[index] = now
                return duty(state)
        return []
