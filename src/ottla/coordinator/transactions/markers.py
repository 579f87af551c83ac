"""The seam to the leaders of a transaction's partitions, which write the markers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.coordinator.runtime import EndOfTransaction
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

OnWritten = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class MarkerChannel(Protocol):
    def write(self, end: EndOfTransaction, partitions: frozenset[TopicPartition], on_written: OnWritten) -> None:
        """Write the marker to every partition, here or on a different broker; calls back once, with a code for each.

        A partition that does not exist any more needs no marker: its code is NONE.
        """
        ...
