"""Which transactional batches and markers a pass of compaction may drop.

Batches of aborted transactions are removed. A marker stays if the pass has met a batch of its transaction before the
marker. A marker without such a batch is treated as a tombstone: it gets a delete horizon (KIP-534). One object follows
one pass over the log, batch by batch, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ottla.log.transaction_index import AbortedTxn
from ottla.model.ids import Offset, ProducerId
from ottla.protocol.records import BatchHeader, ControlType


class CleanedTransactions:
    __slots__ = ("_aborted", "_ongoing_aborted", "_ongoing_committed", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted`: the aborted transactions that overlap the offsets of this pass."""
        self._aborted = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        self._ongoing_aborted: dict[ProducerId, tuple[AbortedTxn, bool]] = {}
        """By producer: the transaction, and whether one of its batches was met."""
        self._ongoing_committed: set[ProducerId] = set()
        self.kept: list[AbortedTxn] = []
        """Aborted transactions whose marker was met and stays: they belong into the new transaction index."""

    def on_batch(self, header: BatchHeader) -> bool:
        """A data batch was read; True when its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._ongoing_aborted.get(header.producer_id)
        if ongoing is None:
            self._ongoing_committed.add(header.producer_id)
            return False
        self._ongoing_aborted[header.producer_id] = (ongoing[0], True)
        return True

    def on_control_batch(self, header: BatchHeader, control_type: int | None) -> bool:
        """A control batch was read (`control_type` None when it is empty); True when nothing needs it any more."""
        self._begin_up_to(header.last_offset)
        if control_type is None:
            return True
        if control_type == ControlType.COMMIT:
            needed = header.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(header.producer_id)
            return not needed
        if control_type == ControlType.ABORT:
            aborted = self._ongoing_aborted.pop(header.producer_id, None)
            if aborted is None or not aborted[1]:
                return True
            self.kept.append(aborted[0])
        return False

    def _begin_up_to(self, offset: Offset) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            txn = self._aborted.popleft()
            self._ongoing_aborted.setdefault(txn.producer_id, (txn, False))
