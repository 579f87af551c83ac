"""Random producers, ends, lost answers, broken markers, timeouts and restarts: a transaction has one outcome everywhere.

The partitions are judged by the log's own producer state, so that a marker or a write of a wrong epoch is refused as a
leader would refuse it.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.coordinator.runtime import EndOfTransaction
from ottla.coordinator.transactions.end_transaction import EndRequest
from ottla.coordinator.transactions.init_producer_id import InitRequest
from ottla.coordinator.transactions.states import TransactionState
from ottla.log.producer_state import ProducerState
from ottla.log.validation import AppendOrigin
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.records import ControlType, EndTxnMarker, SimpleRecord, build_batch, parse_header
from tests.transactions.virtual_world import TransactionWorld

PARTITIONS = [TopicPartition("t", index) for index in range(3)]
IDS = ["a", "b"]
TIMEOUT_MS = 20_000


class Data:
    """One partition: who wrote what, and what became of it."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.state.verification_enabled = True
        self.offset = 0
        self.open: dict[int, list[int]] = defaultdict(list)

    def _header(self, producer_id: int, epoch: int, sequence: int, *, control: bool = False) -> Any:
        batch = build_batch(
            [SimpleRecord(0, None, b"x")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
            control=control,
        )
        return parse_header(batch, 0)

    def guard(self, producer_id: int, epoch: int, *, bump: bool) -> Any:
        return self.state.start_verification(producer_id, -1, epoch, 0, supports_epoch_bump=bump)

    def write(self, producer_id: int, epoch: int, guard: Any, transaction: int) -> None:
        header = self._header(producer_id, epoch, 0)
        self.state.check(header, AppendOrigin.COORDINATOR, guard)
        self.state.update(header, self.offset)
        self.offset += 1
        self.open[producer_id].append(transaction)

    def mark(self, end: EndOfTransaction) -> list[int]:
        header = self._header(end.producer_id, end.producer_epoch, -1, control=True)
        kind = ControlType.COMMIT if end.committed else ControlType.ABORT
        marker = EndTxnMarker(kind, end.coordinator_epoch)
        self.state.check_marker(header, marker, end.transaction_version)
        completed = self.state.update_marker(header, marker, self.offset, 0)
        if completed is not None:
            self.state.complete(completed)
        self.offset += 1
        return self.open.pop(end.producer_id, [])


class Client:
    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.ids: tuple[int, int] | None = None
        self.transaction: int | None = None
        self.added: set[TopicPartition] = set()
        """Of transactions v1: what the client has added to its transaction itself, before it wrote there."""
        self.last_end: EndRequest | None = None
        self.ending = False
        """It has asked for the end and has not heard of it: it asks again, or starts anew, before it writes."""


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.data = {tp: Data() for tp in PARTITIONS}
        self.world = TransactionWorld(self._mark)
        self.clients: list[Client] = []
        self.count = 0
        self.outcomes: dict[int, set[bool]] = defaultdict(set)
        self.promised: dict[int, bool] = {}

    def _mark(self, end: EndOfTransaction, tp: TopicPartition) -> ErrorCode:
        try:
            ended = self.data[tp].mark(end)
        except KafkaError as error:
            return error.code
        for transaction in ended:
            self.outcomes[transaction].add(end.committed)
        return ErrorCode.NONE

    # Producers

    @rule(name=st.sampled_from(IDS), version=st.sampled_from([0, 2]))
    def start_producer(self, name: str, version: int) -> None:
        client = Client(name, version)
        self.clients.append(client)
        self._init(client)

    def _init(self, client: Client) -> None:
        def take(answer: Any) -> None:
            if not isinstance(answer, KafkaError):
                client.ids = tuple(answer)
                client.transaction = None
                client.added.clear()
                client.ending = False

        self.world.coordinator.init_producer_id(InitRequest(client.name, TIMEOUT_MS), take)

    @rule(number=st.integers(0, 5), tp=st.sampled_from(PARTITIONS))
    def write(self, number: int, tp: TopicPartition) -> None:
        client = self._client(number)
        # With transactions v2 the end has moved the epoch on: whoever writes without knowing is fenced.
        if client is None or client.ids is None or (client.ending and client.version == 0):
            return
        data = self.data[tp]
        if client.version == 0 and not self._added(client, tp):
            return
        try:
            guard = data.guard(*client.ids, bump=client.version == 2)
        except KafkaError:
            return
        if guard is not None and not self._verified(client, tp):
            return
        if client.transaction is None:
            self.count += 1
            client.transaction = self.count
        with contextlib.suppress(KafkaError):
            data.write(*client.ids, guard, client.transaction)

    def _added(self, client: Client, tp: TopicPartition) -> bool:
        """A client of transactions v1 adds a partition and hears of it before it writes there, in each transaction: an
        end that it has heard of may still be on its way to the partitions."""
        if tp not in client.added and self._asked(client, tp, adds=True):
            client.added.add(tp)
        return tp in client.added

    def _verified(self, client: Client, tp: TopicPartition) -> bool:
        """The broker asks before a transaction's first write: for a client of v2 that adds the partition."""
        return self._asked(client, tp, adds=client.version == 2)

    def _asked(self, client: Client, tp: TopicPartition, *, adds: bool) -> bool:
        answers: list[Any] = []
        who = (client.name, *(client.ids or (-1, -1)), frozenset({tp}))
        if adds:
            self.world.coordinator.add_partitions(*who, client.version, answers.append)
        else:
            self.world.coordinator.verify_partitions(*who, answers.append)
        answer = answers[0]
        return not isinstance(answer, KafkaError) and (adds or answer[tp] is ErrorCode.NONE)

    @rule(number=st.integers(0, 5), committed=st.booleans(), lost=st.booleans())
    def end(self, number: int, committed: bool, lost: bool) -> None:
        client = self._client(number)
        if client is None or client.ids is None:
            return
        request = EndRequest(client.name, *client.ids, committed, client.version)
        client.last_end = request
        client.ending = True
        transaction = client.transaction

        def take(answer: Any) -> None:
            if isinstance(answer, KafkaError) or lost:
                return
            if transaction is not None:
                self.promised[transaction] = committed
            client.transaction = None
            client.added.clear()
            client.ending = False
            if answer.producer_id >= 0:
                client.ids = tuple(answer)

        self.world.coordinator.end(request, take)

    @rule(number=st.integers(0, 5))
    def repeat_an_old_end(self, number: int) -> None:
        """A request that was delayed in the network; nobody hears the answer."""
        client = self._client(number)
        if client is not None and client.last_end is not None and client.version == 2:
            self.world.coordinator.end(client.last_end, lambda _: None)

    def _client(self, number: int) -> Client | None:
        return self.clients[number % len(self.clients)] if self.clients else None

    # The world

    @rule(tp=st.sampled_from(PARTITIONS))
    def lose_a_leader(self, tp: TopicPartition) -> None:
        self.world.channel.broken[tp] = ErrorCode.NOT_LEADER_OR_FOLLOWER

    @rule()
    def leaders_are_back(self) -> None:
        self.world.channel.broken.clear()

    @rule()
    def markers_are_slow(self) -> None:
        self.world.channel.held = True

    @rule()
    def markers_arrive(self) -> None:
        self.world.channel.release()

    @rule(delay_ms=st.sampled_from([10, 150, 9_000, 30_000]))
    def time_passes(self, delay_ms: int) -> None:
        self.world.time.advance(delay_ms)

    @rule()
    def restart(self) -> None:
        before = self.world.transactions
        self.world.channel.held = True  # so that what comes of the restart itself does not change the picture
        self.world.restart()
        after = self.world.transactions
        forgotten = {name: replace(found, last_producer_epoch=-1) for name, found in before.items()}
        assert {name: replace(found, last_producer_epoch=-1) for name, found in after.items()} == forgotten

    # Promises

    @invariant()
    def one_outcome(self) -> None:
        for transaction, outcomes in self.outcomes.items():
            assert len(outcomes) == 1, f"transaction {transaction} is torn"
            promised = self.promised.get(transaction)
            assert promised is None or outcomes == {promised}, f"transaction {transaction} went against its answer"

    def teardown(self) -> None:
        """With everything mended, every transaction comes to an end."""
        self.world.channel.broken.clear()
        self.world.channel.release()
        for _ in range(4):
            self.world.time.advance(TIMEOUT_MS)
        for name, found in self.world.transactions.items():
            assert found.state not in (TransactionState.ONGOING, *_PREPARED), f"{name} is still {found.state.name}"
        for tp, data in self.data.items():
            assert not data.state.ongoing, f"a transaction hangs on {tp}"
        self.one_outcome()


_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
