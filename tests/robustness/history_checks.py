"""The simulator's checkers over a recorded history of real nodes. Each returns complaints instead of stopping at the first.

What is checked:

- every settled read of a partition shows the same records, each acknowledged record at its offset, and each record once;
- members of the group poll without gaps, and their polls and the order of acknowledgements agree with that log (`history`);
- commits of the group do not go back, and the group reads everything (`group_ledger`);
- what is visible of transactions is whole, committed and in agreement with the offsets of their inputs
  (`processing_ledger`).
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ottla.model.ids import ZERO_UUID, NodeId, Uuid
from ottla.simulation.group_ledger import AnsweredRequest, GroupLedger
from ottla.simulation.history import Poll, Polled, check_order, check_polls
from ottla.simulation.invariants import Violation
from ottla.simulation.processing_ledger import Input, ProcessingLedger
from tests.robustness.histories import (
    ABORTED,
    APPEND,
    COMMIT,
    FETCH_OFFSET,
    FINAL_OFFSETS,
    LOOK,
    NEVER_NS,
    OK,
    READ,
    SNAPSHOT,
    TRANSACT,
    Operation,
    RecordedOperations,
    recorded_operations,
)

NOBODY = -1
Place = tuple[str, int]


def complaints_of(file: Path) -> list[str]:
    recorded = recorded_operations(file)
    complaints: list[str] = []
    logs = _logs(recorded)
    for place, log in logs.items():
        log.judge(f"{recorded.names.get(place[0], place[0])}-{place[1]}", recorded, complaints)
    _judge_group(recorded, logs, complaints)
    _judge_transactions(recorded, complaints)
    return complaints


def _try(complaints: list[str], check: Callable[[], object]) -> None:
    try:
        check()
    except Violation as violation:
        complaints.append(str(violation))


# --------------------------------------------------------------------------------------------------- logs of partitions


@dataclass(slots=True)
class PartitionLog:
    appends: list[Operation] = field(default_factory=list)
    settled: list[Operation] = field(default_factory=list)
    polls: dict[tuple[str, int], list[Operation]] = field(default_factory=dict)
    """Member and the number of its assignment -> its reads."""
    records: dict[int, str] = field(default_factory=dict)
    """Offset -> value, of the settled reads."""
    end: int = 0

    def judge(self, where: str, recorded: RecordedOperations, complaints: list[str]) -> None:
        self._put_together(where, complaints)
        self._judge_acknowledged(where, recorded, complaints)
        batches = {offset: (offset, 0, _crc(value)) for offset, value in self.records.items()}
        limit = None if recorded.finished else self.end
        for (member, _), reads in self.polls.items():
            _try(complaints, partial(check_polls, f"{where}, {member}", _polled(reads, limit), batches, 0))
        _try(complaints, partial(check_order, where, batches, *self._sent()))

    def _put_together(self, where: str, complaints: list[str]) -> None:
        for read in self.settled:
            for offset, value in read.answer["records"]:
                before = self.records.setdefault(offset, value)
                if before != value:
                    complaints.append(f"{where}: {before!r} was at {offset}, and now {value!r} is there")
            if read.answer["end"] < self.end:
                complaints.append(f"{where}: a log of {self.end} records has {read.answer['end']} now")
            self.end = max(self.end, read.answer["end"])
        gaps = sorted(set(range(self.end)) - set(self.records))
        if gaps:
            complaints.append(f"{where}: {len(gaps)} offsets are empty, from {gaps[0]} on")

    def _judge_acknowledged(self, where: str, recorded: RecordedOperations, complaints: list[str]) -> None:
        places: dict[str, list[int]] = {}
        for offset, value in self.records.items():
            places.setdefault(value, []).append(offset)
        last_read_ns = max((read.invoked_ns for read in self.settled), default=0)
        for append in self.appends:
            value, offsets = append.facts["value"], places.pop(append.facts["value"], [])
            if len(offsets) > 1:
                complaints.append(f"{where}: {value!r} is at {offsets}: doubled")
            if append.outcome != OK or not (append.completed_ns < last_read_ns or recorded.finished):
                continue
            offset = append.answer.get("offset")
            if not offsets:
                complaints.append(f"{where}: {value!r} was acknowledged at {offset} and is lost")
            elif offset is not None and offset not in offsets:
                complaints.append(f"{where}: {value!r} was acknowledged at {offset}, and is at {offsets}")
        complaints.extend(
            f"{where}: {value!r} was never sent, and is at {offsets}" for value, offsets in places.items()
        )

    def _sent(self) -> tuple[list[int], dict[int, int]]:
        """As `check_order` reads them: the records in the order of their sending, and how many had been sent when one was
        acknowledged. Records of one time count as sent after it.
        """
        sent = [_crc(append.facts["value"]) for append in self.appends]
        answers = sorted((a for a in self.appends if a.outcome == OK), key=lambda append: append.completed_ns)
        acknowledged, count = dict[int, int](), 0
        for append in answers:
            while count < len(self.appends) and self.appends[count].invoked_ns <= append.completed_ns:
                count += 1
            acknowledged[_crc(append.facts["value"])] = count
        return sent, acknowledged


def _logs(recorded: RecordedOperations) -> dict[Place, PartitionLog]:
    logs: dict[Place, PartitionLog] = {}
    for operation in recorded.of(APPEND, READ):
        log = logs.setdefault(operation.partition, PartitionLog())
        if operation.op == APPEND:
            log.appends.append(operation)
        elif "client" in operation.facts:
            member = (operation.facts["client"], operation.facts["assignment"])
            log.polls.setdefault(member, []).append(operation)
        elif operation.answer.get("settled"):
            log.settled.append(operation)
    return logs


def _crc(value: str) -> int:
    return zlib.crc32(value.encode())


def _polled(reads: list[Operation], limit: int | None) -> Polled:
    """Up to `limit`: what no settled read has seen is not known to be committed."""
    first = reads[0].facts["from"]
    polls = [
        Poll(offset, offset, _crc(value), NOBODY)
        for read in reads
        for offset, value in read.answer["records"]
        if limit is None or offset < limit
    ]
    return Polled(position=polls[-1].last + 1 if polls else first, first=first, polls=polls)


# --------------------------------------------------------------------------------------------------------------- groups


def _judge_group(recorded: RecordedOperations, logs: dict[Place, PartitionLog], complaints: list[str]) -> None:
    ledger = GroupLedger("watchers")
    floors: dict[str, int] = {}
    steps: list[tuple[int, int, Operation]] = []
    for operation in recorded.of(COMMIT, FETCH_OFFSET, READ):
        if "client" in operation.facts:
            steps.append((operation.invoked_ns, 0, operation))
            if operation.completed_ns < NEVER_NS:
                steps.append((operation.completed_ns, 1, operation))
    for _, is_answer, operation in sorted(steps, key=lambda step: step[:2]):
        _try(complaints, partial(_group_step, ledger, floors, operation, is_answer=bool(is_answer)))
    if recorded.finished:
        for key, place in {_key(operation): operation.partition for _, _, operation in steps}.items():
            _try(complaints, partial(ledger.all_read, key, logs[place].records))


def _key(operation: Operation) -> tuple[Uuid, int]:
    topic, partition = operation.partition
    return Uuid(bytes.fromhex(topic)), partition


def _group_step(ledger: GroupLedger, floors: dict[str, int], operation: Operation, *, is_answer: bool) -> None:
    key, member = _key(operation), operation.facts["client"]
    if not is_answer:
        floors[operation.id] = ledger.floor(key)
        if operation.op == COMMIT:
            ledger.trying(key, operation.facts["offset"])
    elif operation.op == FETCH_OFFSET:
        exchange = AnsweredRequest(NodeId(NOBODY), operation.invoked_ns, operation.completed_ns)
        ledger.granted(member, None, key, exchange)  # commits of earlier owners are fenced from now on
        ledger.fetched(key, operation.answer["offset"], floors[operation.id])
    elif operation.op == READ:
        records = operation.answer["records"]
        ledger.polled(member, key, operation.facts["from"], records[0][0], records[-1][0] + 1)
    elif operation.outcome == OK:
        ledger.committed(member, key, operation.facts["offset"], floors[operation.id])
    else:
        ledger.unclear(key, operation.facts["offset"])


# --------------------------------------------------------------------------------------------------------- transactions


class _Copies:
    """Reads of the output against the recorded transactions; each half of the output has a ledger of its own."""

    def __init__(self, transactions: dict[str, Operation]) -> None:
        self.transactions = transactions
        self._numbers = {name: number for number, name in enumerate(transactions)}
        self._halves = [ProcessingLedger(f"output, half {half}") for half in range(2)]
        self._rows: dict[Place, tuple[str, int, int]] = {}
        """Partition and offset of the output -> transaction, number of the input, half."""
        self._inputs: dict[int, Input] = {}
        for name, operation in transactions.items():
            inputs = [Input((ZERO_UUID, partition), offset) for _, partition, offset in operation.facts["inputs"]]
            for (number, _, _), place in zip(operation.facts["inputs"], inputs, strict=True):
                self._inputs[number] = place
            for ledger in self._halves:
                ledger.open.add(self._numbers[name])
                if operation.outcome == OK:
                    ledger.committed[self._numbers[name]] = inputs
                elif operation.outcome == ABORTED:
                    ledger.aborted.add(self._numbers[name])

    def saw(self, row: tuple[int, str, int, int, int], at_ns: int) -> None:
        offset, name, partition, number, half = row
        where = f"output-{partition}@{offset}"
        before = self._rows.get((str(partition), offset))
        if before is not None and before != (name, number, half):
            raise Violation(f"{where}: {before} was there, and now {name, number, half} is")
        if name not in self.transactions:
            raise Violation(f"{where}: a record of {name}, which no worker has begun")
        if before is None:
            self._rows[str(partition), offset] = (name, number, half)
            if self.transactions[name].asked_ns <= at_ns:
                self._halves[half].open.discard(self._numbers[name])
            self._halves[half].saw(self._numbers[name], self._inputs[number])

    def torn(self, snapshot: Operation) -> Iterator[str]:
        """Of the last snapshot: transactions that are there in part, and records that were read before and are gone."""
        rows = {(str(partition), offset) for offset, _, partition, *_ in snapshot.answer["records"]}
        yield from (
            f"output-{place[0]}@{place[1]}: {row} was read, and is lost"
            for place, row in self._rows.items()
            if place not in rows
        )
        counts = Counter(name for _, name, *_ in snapshot.answer["records"])
        for name, count in counts.items():
            size = self.transactions[name].facts["size"] if name in self.transactions else count
            if count != size:
                yield f"output: {count} of {size} records of transaction {name} are there"

    def judge(self, offsets: dict[str, int]) -> None:
        for ledger in self._halves:
            ledger.judge({(ZERO_UUID, int(partition)): offset for partition, offset in offsets.items()})


def _judge_transactions(recorded: RecordedOperations, complaints: list[str]) -> None:
    copies = _Copies({operation.facts["value"]: operation for operation in recorded.of(TRANSACT)})
    reads = sorted(recorded.of(LOOK, SNAPSHOT), key=lambda read: read.completed_ns)
    for read in reads:
        for row in read.answer.get("records", []):
            _try(complaints, partial(copies.saw, tuple(row), read.completed_ns))
    snapshots = [read for read in reads if read.op == SNAPSHOT]
    for snapshot in snapshots[-1:]:
        complaints.extend(copies.torn(snapshot))
    for operation in recorded.of(FINAL_OFFSETS):
        if snapshots:
            _try(complaints, partial(copies.judge, operation.answer["offsets"]))
