"""Scenarios that read like a transcript: a line is a command, the indented lines below it are what came of it.

`A init` sends an InitProducerId for the producer A (its name is its transactional id). `OTTLA_REWRITE=1` writes what
came into the file instead of comparing. The commands are the methods `do_*` below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.coordinator.loader import Loader
from ottla.coordinator.runtime import EndOfTransaction
from ottla.coordinator.transactions.end_transaction import EndRequest
from ottla.coordinator.transactions.init_producer_id import InitRequest, ProducerIdAndEpoch
from ottla.coordinator.transactions.listing import Filters
from ottla.coordinator.transactions.records import TransactionRecord, decode
from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from tests.transactions.virtual_world import TransactionWorld

Options = dict[str, str]


def run(path: Path) -> str:
    player = Transcript()
    lines = []
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"  {outcome}" for outcome in player.play(line)]
    return "\n".join(lines) + "\n"


class Records:
    """Says what was written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def replay(self, offset: int, producer_id: int, record: TransactionRecord) -> None:
        found = record.metadata
        if found is None:
            self.lines.append(f"wrote {record.transactional_id}: tombstone")
            return
        partitions = " ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(found.partitions))
        after = f" then {found.next_producer_id}" if found.next_producer_id >= 0 else ""
        self.lines.append(
            f"wrote {record.transactional_id}: {found.state.state_name} {found.producer_id}:{found.producer_epoch}"
            f"{after} [{partitions}] v{found.client_transaction_version}"
        )

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        raise AssertionError("there are no markers in this log")


class Transcript:
    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.ids: dict[str, ProducerIdAndEpoch] = {}
        self.world = TransactionWorld(self._write)
        self._written = 0

    def _write(self, end: EndOfTransaction, tp: TopicPartition) -> ErrorCode:
        what = "commit" if end.committed else "abort"
        self.outcomes.append(f"marker {tp.topic}-{tp.partition}: {what} {end.producer_id}:{end.producer_epoch}")
        return ErrorCode.NONE

    def play(self, line: str) -> list[str]:
        """`[PRODUCER] VERB argument... key=value...`"""
        self.outcomes = []
        words = line.split()
        name = words.pop(0) if words[0][0].isupper() else ""
        verb = words.pop(0)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        getattr(self, f"do_{verb.replace('-', '_')}")(name, arguments, options)
        return self._records() + self.outcomes

    def _records(self) -> list[str]:
        records = Records()
        loader = Loader(self.world.log, records, decode)
        loader._next_offset, self._written = self._written, self.world.log.log_end_offset
        while not loader.load_some():
            pass
        return records.lines

    def _waiter(self, what: str, keep: str = "") -> Any:
        def take(answer: Any) -> None:
            if isinstance(answer, KafkaError):
                self.outcomes.append(f"{what}: {answer.code.name}")
                return
            if keep and answer is not None and answer[0] >= 0:
                self.ids[keep] = ProducerIdAndEpoch(*answer)
            shown = "done" if answer is None else f"{answer[0]}:{answer[1]}"
            self.outcomes.append(f"{what}: {shown}")

        return take

    def _who(self, name: str, options: Options) -> tuple[str, int, int]:
        """With `epoch=-1` or `id=+1` relative to what the producer was given."""
        known = self.ids.get(name, ProducerIdAndEpoch(0, 0))
        return (
            name,
            known.producer_id + int(options.get("id", "0")),
            known.producer_epoch + int(options.get("epoch", "0")),
        )

    # Requests

    def do_init(self, name: str, arguments: list[str], options: Options) -> None:
        expected = ProducerIdAndEpoch(*self._who(name, options)[1:]) if "bump" in arguments else None
        request = InitRequest(name, int(options.get("timeout", "60000")), expected, "2pc" in arguments)
        self.world.coordinator.init_producer_id(request, self._waiter(f"{name} init", name))

    def do_add(self, name: str, arguments: list[str], options: Options) -> None:
        partitions = frozenset(TopicPartition("t", int(word)) for word in arguments)
        self.world.coordinator.add_partitions(
            *self._who(name, options), partitions, int(options.get("v", "2")), self._waiter(f"{name} added")
        )

    def do_verify(self, name: str, arguments: list[str], options: Options) -> None:
        def take(answer: Any) -> None:
            if isinstance(answer, KafkaError):
                self.outcomes.append(f"{name} verified: {answer.code.name}")
            else:
                self.outcomes += [f"{name} verified {tp.partition}: {answer[tp].name}" for tp in sorted(answer)]

        partitions = frozenset(TopicPartition("t", int(word)) for word in arguments)
        self.world.coordinator.verify_partitions(*self._who(name, options), partitions, take)

    def do_commit(self, name: str, arguments: list[str], options: Options) -> None:
        self._end(name, options, committed=True)

    def do_abort(self, name: str, arguments: list[str], options: Options) -> None:
        self._end(name, options, committed=False)

    def _end(self, name: str, options: Options, *, committed: bool) -> None:
        request = EndRequest(*self._who(name, options), committed, int(options.get("v", "2")))
        self.world.coordinator.end(request, self._waiter(f"{name} {'commit' if committed else 'abort'}", name))

    def do_describe(self, name: str, arguments: list[str], options: Options) -> None:
        def take(answer: Any) -> None:
            if isinstance(answer, KafkaError):
                self.outcomes.append(f"{name}: {answer.code.name}")
                return
            partitions = [index for topic in answer.topics for index in topic.partitions]
            ids = f"{answer.producer_id}:{answer.producer_epoch}"
            self.outcomes.append(f"{name}: {answer.transaction_state} {ids} {partitions}")

        self.world.coordinator.describe(name, take)

    def do_list(self, name: str, arguments: list[str], options: Options) -> None:
        filters = Filters(duration_ms=int(options.get("longer", "-1")))

        def take(answer: Any) -> None:
            self.outcomes.append(" ".join(f"{one.transactional_id}={one.transaction_state}" for one in answer))

        self.world.coordinator.list_transactions(filters, take)

    # The world

    def do_settings(self, name: str, arguments: list[str], options: Options) -> None:
        version = int(options.pop("version", "2"))
        values = {key.replace(".", "_"): int(value) for key, value in options.items()}
        settings = TransactionCoordinatorSettings(transaction_state_log_num_partitions=1, **values)
        self.world = TransactionWorld(self._write, settings, version)

    def do_wait(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.time.advance(int(arguments[0]))

    def do_restart(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.restart()

    def do_hold(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.channel.held = True

    def do_release(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.channel.release()

    def do_break(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.channel.broken[TopicPartition("t", int(arguments[0]))] = ErrorCode[arguments[1]]

    def do_mend(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.channel.broken.clear()

    def do_hold_commits(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.partition.hold_commits = True

    def do_release_commits(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.partition.hold_commits = False
        self.world.partition.commit()

    def do_fail_appends(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.partition.failure = KafkaError(ErrorCode[arguments[0]])

    def do_heal_appends(self, name: str, arguments: list[str], options: Options) -> None:
        self.world.partition.failure = None

    def do_forge(self, name: str, arguments: list[str], options: Options) -> None:
        """As if it had come this far: the epochs of an id are used up after 32766 of them."""
        from dataclasses import replace

        machine = self.world.coordinator.shards[0].machine
        metadata = replace(machine.transactions[name], producer_epoch=int(arguments[0]))
        machine._context.transactions[name] = metadata
        self.ids[name] = ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch)
