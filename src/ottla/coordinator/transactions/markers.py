"""The seam to the leaders of a transaction's partitions: who writes its markers, and how the answer comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.coordinator.runtime import EndOfTransaction
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

OnWritten = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class MarkerChannel(Protocol):
    def write(self, end: EndOfTransaction, partitions: frozenset[TopicPartition], on_written: OnWritten) -> None:
        """Have the marker written to every partition, here or on another broker; called back once, with a code for
        each. A partition that does not exist any more needs no marker: its code is NONE."""
        ...
