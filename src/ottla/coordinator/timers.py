"""Timers by key: one deadline for each key, moved without touching the event loop.

A heartbeat moves its member's deadline. The loop's timer stays; a timer that rings early is set again for the remaining
time. Ten thousand members that beat every three seconds cost ten thousand assignments, not timers.

An event that is refused leaves no trace here (`restore`): cancelled deadlines are set again, new deadlines are
cancelled, moved deadlines get their operation back. Only a deadline that moved to a later time stays there, because the
client of the request is alive. A lasting deadline stays too. A classic group changes while it decides: the group may
have a member whose event was refused, and the member's session must end. An operation that returns False runs again, as
in Kafka's coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ottla.env.seams import Clock, Timer, Timers

OperationT = TypeVar("OperationT")

RETRY_MS = 500
"""Kafka's pause before an operation with refused records runs again; here the pause doubles each time."""
_MAX_DOUBLINGS = 4
"""Up to eight seconds: ten thousand dead members must not keep the node busy while their log refuses writes."""


class _Entry(Generic[OperationT]):
    __slots__ = ("deadline", "operation", "rings_at", "timer", "tries")

    def __init__(self, deadline: float, operation: OperationT) -> None:
        self.deadline = deadline
        self.operation = operation
        self.rings_at = deadline
        self.timer: Timer | None = None
        self.tries = 0


class KeyedTimers(Generic[OperationT]):
    """`fire` gets the operation of a key whose deadline has passed; the key is free again by then.

    When `fire` returns False the same operation runs again, after a growing pause.
    """

    def __init__(self, timers: Timers, clock: Clock, fire: Callable[[OperationT], object]) -> None:
        self._timers = timers
        self._clock = clock
        self._fire = fire
        self._entries: dict[Hashable, _Entry[OperationT]] = {}
        self._before: dict[Hashable, tuple[float, OperationT] | None] = {}
        """Deadline and operation of each key that the current event has touched; None: the key had none."""

    def schedule(self, key: Hashable, delay_ms: float, operation: OperationT, *, lasting: bool = False) -> None:
        """Set the deadline of `key`, in place of its earlier deadline. `lasting`: also when the event is refused."""
        deadline = self._clock.monotonic_ms() + max(delay_ms, 0)
        self._note(key)
        if lasting and self._before[key] is None:
            del self._before[key]
        entry = self._entries.get(key)
        if entry is not None and entry.rings_at <= deadline:
            entry.deadline = deadline
            entry.operation = operation
            return
        self._drop(key)
        entry = self._entries[key] = _Entry(deadline, operation)
        self._arm(key, entry)

    def cancel(self, key: Hashable) -> None:
        self._note(key)
        self._drop(key)

    def cancel_all(self) -> None:
        for key in list(self._entries):
            self._drop(key)
        self._before.clear()

    def begin(self) -> None:
        """An event begins: the deadlines of earlier events stay."""
        self._before.clear()

    def restore(self) -> None:
        """The event came to nothing."""
        touched, self._before = self._before, {}
        now_ms = self._clock.monotonic_ms()
        for key, before in touched.items():
            entry = self._entries.get(key)
            if before is None:
                self._drop(key)
            else:
                deadline = before[0] if entry is None else max(before[0], entry.deadline)
                self.schedule(key, deadline - now_ms, before[1])
        self._before.clear()

    def _note(self, key: Hashable) -> None:
        if key not in self._before:
            entry = self._entries.get(key)
            self._before[key] = None if entry is None else (entry.deadline, entry.operation)

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def _arm(self, key: Hashable, entry: _Entry[OperationT]) -> None:
        entry.rings_at = entry.deadline
        delay_ms = max(entry.deadline - self._clock.monotonic_ms(), 0)
        entry.timer = self._timers.call_later(delay_ms, lambda: self._ring(key, entry))

    def _ring(self, key: Hashable, entry: _Entry[OperationT]) -> None:
        if self._entries.get(key) is not entry:
            return
        if self._clock.monotonic_ms() < entry.deadline:
            self._arm(key, entry)
            return
        del self._entries[key]
        if self._fire(entry.operation) is False:
            self._retry(key, entry)

    def _retry(self, key: Hashable, failed: _Entry[OperationT]) -> None:
        """An operation that had set its own next deadline gets this deadline instead if that would come sooner."""
        pause_ms = RETRY_MS << min(failed.tries, _MAX_DOUBLINGS)
        entry = self._entries.get(key)
        if entry is None or entry.deadline < self._clock.monotonic_ms() + pause_ms:
            self._drop(key)
            self.schedule(key, pause_ms, failed.operation)
            self._entries[key].tries = failed.tries + 1
