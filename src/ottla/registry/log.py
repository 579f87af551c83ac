"""Replay the topic's records in order, and settle races between writers: compare and append, by the log itself.

A record that we write carries the header `ottla.seen`: one more than the offset of the last record that its writer had
applied. Every instance applies the record only if that is still true, and all instances read the same log. So a
decision made on an old state is void for every instance. Two writers cannot both assign the next id, even if both
believe that they are elected. Records without the header (Confluent's own) are applied as they come.

Compaction may keep a void record and remove the one that beat it. The writer therefore writes the truth over every void
record's key as soon as it reads one (`voided`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from ottla.env.logging import get_logger
from ottla.registry.state import RegistryState

SEEN = "ottla.seen"
_REMEMBERED = 1000
log = get_logger(__name__)

Message = tuple[int, bytes | None, bytes | None, int | None]
"""Offset, key, value and what the writer had seen."""


class SchemasLog:
    def __init__(self, state: RegistryState) -> None:
        self.state = state
        self.position = 0
        """Everything below has been read."""
        self.last_applied = -1
        self.voided: dict[bytes, int] = {}
        """Keys of void records that are not written over yet, with the offset of the last one."""
        self._waiting: list[tuple[int, Callable[[], object]]] = []
        self._applied_by: OrderedDict[int, int] = OrderedDict()
        """Offset -> seen of the last valid records that carried the header: what a writer looks for after its own."""

    @property
    def seen(self) -> int:
        """The value of the header `ottla.seen` that makes the next record valid."""
        return self.last_applied + 1

    def apply(self, messages: list[Message], end: int | None = None) -> None:
        """Records in order; `end` is the log's end when the reader has reached it."""
        for offset, key, value, seen in messages:
            if offset >= self.position:
                self._apply(offset, key, value, seen)
                self.position = offset + 1
        if end is not None:
            self.position = max(self.position, end)
        if self._waiting:
            self._wake()

    def _apply(self, offset: int, key: bytes | None, value: bytes | None, seen: int | None) -> None:
        if key is None:
            return
        valid = seen is None or seen > self.last_applied
        if not valid:
            self.voided[key] = offset
            log.warning("record.voided", offset=offset, seen=seen, applied=self.last_applied)
            return
        try:
            self.state.replay(key, value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.error("record.not_read", offset=offset, reason=str(error))
        self.last_applied = offset
        if seen is not None:
            self._applied_by[offset] = seen
            if len(self._applied_by) > _REMEMBERED:
                self._applied_by.popitem(last=False)
        self.voided.pop(key, None)

    # Waiting

    def when(self, position: int, callback: Callable[[], object]) -> None:
        """Call once everything below `position` has been read."""
        if self.position >= position:
            callback()
        else:
            self._waiting.append((position, callback))

    def _wake(self) -> None:
        due = [callback for position, callback in self._waiting if position <= self.position]
        self._waiting = [waiter for waiter in self._waiting if waiter[0] > self.position]
        for callback in due:
            callback()

    def outcome(self, offset: int, seen: int) -> bool:
        """Whether our record at `offset`, read back since, was valid: nothing was applied between it and `seen`."""
        return self._applied_by.pop(offset, None) == seen
