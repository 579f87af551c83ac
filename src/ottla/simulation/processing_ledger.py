"""What processors that read, process and write in transactions were promised, and what readers of their output saw.

No I/O and no time: processors and readers report, and a broken promise raises Violation. The output that is visible and
the committed offsets of the input must agree, whatever became of the processors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.replication.fetch_session import Key
from ottla.simulation.invariants import Violation


class Input(NamedTuple):
    """One record of the input."""

    key: Key
    offset: int


class ProcessingLedger:
    def __init__(self, title: str) -> None:
        self._title = title
        self.open: set[int] = set()
        """Transactions that nobody has asked to commit."""
        self.aborted: set[int] = set()
        self.committed: dict[int, list[Input]] = {}
        """Transactions whose commit was acknowledged."""
        self.seen: dict[Input, int] = {}
        """Input record -> the transaction whose output is visible."""

    def saw(self, number: int, record: Input) -> None:
        """A reader got the output of a transaction for this record of the input."""
        where = f"{self._title}: the output of transaction {number} for partition {record.key[1]} at {record.offset}"
        if number in self.aborted:
            raise Violation(f"{where} is read, but the transaction was aborted")
        if number in self.open:
            raise Violation(f"{where} is read before the end of its transaction")
        if record in self.seen:
            raise Violation(f"{where} is read again: transaction {self.seen[record]} has written it")
        self.seen[record] = number

    def judge(self, committed_offsets: Mapping[Key, int]) -> None:
        """At the end: everything was read, no transaction is open."""
        for number, inputs in self.committed.items():
            missing = [record for record in inputs if record not in self.seen]
            if missing:
                raise Violation(
                    f"{self._title}: transaction {number} was committed, and {len(missing)} records are missing"
                )
        for key, committed_offset in committed_offsets.items():
            outputs = {record.offset for record in self.seen if record.key == key}
            torn = outputs ^ set(range(committed_offset))
            if torn:
                raise Violation(
                    f"{self._title}: offset {committed_offset} of partition {key[1]} is committed, but the output and "
                    f"this offset disagree from record {min(torn)} on"
                )
