"""Producer ids come from the controller in blocks: who needs one waits for it or is told to try again, who needs none is
served while the controller is away."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers import end_txn, init_producer_id
from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.coordinator.transactions.coordinator import TransactionCoordinator
from ottla.coordinator.transactions.metadata import MAX_EPOCH
from ottla.coordinator.transactions.records import TransactionRecord
from ottla.coordinator.transactions.states import TransactionState
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.allocate_producer_ids_response import AllocateProducerIdsResponse
from ottla.protocol.generated.end_txn_request import EndTxnRequest
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from tests.transactions.virtual_world import TransactionWorld

BLOCK = 1_000
LAST_EPOCH = MAX_EPOCH - 1


class Controller:
    """Gives blocks of ids, or fails as it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.failure: KafkaError | None = None
        self.code = ErrorCode.NONE

    async def allocate(self, _request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        self.asked += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if self.code:
            return AllocateProducerIdsResponse(error_code=int(self.code))
        return AllocateProducerIdsResponse(producer_id_start=self.asked * BLOCK, producer_id_len=BLOCK)


class Node(TransactionWorld):
    def __init__(self) -> None:
        self.controller = Controller()
        self.producer_ids = self._block()
        super().__init__(lambda _end, _tp: ErrorCode.NONE)

    def _block(self) -> ProducerIds:
        return ProducerIds(self.controller.allocate, lambda: AllocateProducerIdsRequest(1, 1))

    def _coordinator(self) -> TransactionCoordinator:
        version = self.transaction_version
        parts = (self.settings, self.time, self.time, self.replicas, self.channel, self.producer_ids.take)
        return TransactionCoordinator(*parts, lambda: version)  # type: ignore[arg-type]

    def restart(self) -> None:
        self.producer_ids = self._block()
        super().restart()

    async def ask(self, handler: Any, request: Any, version: int) -> Any:
        broker = SimpleNamespace(producer_ids=self.producer_ids, transactions=self.coordinator)
        answer = handler.handle(SimpleNamespace(broker=broker, version=version), request)
        return await answer if inspect.isawaitable(answer) else answer

    async def init(self, name: str | None = "x", timeout_ms: int = 60_000) -> Any:
        return await self.ask(init_producer_id, InitProducerIdRequest(name, timeout_ms), 5)

    async def end(self, epoch: int) -> Any:
        return await self.ask(end_txn, EndTxnRequest("x", self.transactions["x"].producer_id, epoch, True), 5)

    async def open_last_transaction(self) -> None:
        """An open transaction in the last epoch that a producer gets; the node has started anew since."""
        given = await self.init()
        ids = (given.producer_id, given.producer_epoch)
        self.coordinator.add_partitions("x", *ids, frozenset({TopicPartition("t", 0)}), 2, lambda _: None)
        last = replace(self.transactions["x"], producer_epoch=LAST_EPOCH)
        self.coordinator.shards[0].submit(lambda: Decision([], [TransactionRecord("x", last)]))
        self.restart()


def run(scenario: Any) -> None:
    asyncio.run(scenario)


@pytest.mark.parametrize("raises", [False, True], ids=["answers an error", "cannot be asked"])
def test_an_end_that_needs_an_id_is_told_to_try_again_while_the_controller_is_away(raises: bool) -> None:
    async def scenario() -> None:
        node = Node()
        await node.open_last_transaction()
        away = ErrorCode.REQUEST_TIMED_OUT
        node.controller.failure = KafkaError(away) if raises else None
        node.controller.code = away
        refused = await node.end(LAST_EPOCH)
        assert ErrorCode(refused.error_code) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert node.transactions["x"].state is TransactionState.ONGOING
        node.controller.failure, node.controller.code = None, ErrorCode.NONE
        ended = await node.end(LAST_EPOCH)
        assert ended.error_code == 0
        assert ended.producer_epoch == 0
        assert ended.producer_id >= BLOCK

    run(scenario())


def test_a_transaction_that_times_out_in_its_last_epoch_is_aborted_after_a_restart() -> None:
    """Nobody asks for an id meanwhile: the round that finds none asks for a block, the next one has it."""

    async def scenario() -> None:
        node = Node()
        await node.open_last_transaction()
        interval_ms = node.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        for _ in range(10):
            node.time.advance(interval_ms)
            for _ in range(5):
                await asyncio.sleep(0)
        assert node.transactions["x"].state is TransactionState.COMPLETE_ABORT
        assert node.transactions["x"].producer_epoch == 0

    run(scenario())


def test_a_known_transactional_id_is_served_while_the_controller_is_away() -> None:
    async def scenario() -> None:
        node = Node()
        first = await node.init()
        node.restart()
        node.controller.failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        asked = node.controller.asked
        again = await node.init()
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, first.producer_id, 1)
        assert node.controller.asked == asked

    run(scenario())


@pytest.mark.parametrize("name", [None, "new"])
def test_who_needs_an_id_is_told_to_try_again_while_the_controller_is_away(name: str | None) -> None:
    async def scenario() -> None:
        node = Node()
        node.controller.failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        refused = await node.init(name)
        assert ErrorCode(refused.error_code) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)
        node.controller.failure = None
        assert (await node.init(name)).error_code == 0

    run(scenario())


def test_many_who_need_an_id_at_once_ask_the_controller_once() -> None:
    async def scenario() -> None:
        node = Node()
        answers = await asyncio.gather(*(node.init(None) for _ in range(50)))
        assert len({answer.producer_id for answer in answers}) == 50
        assert node.controller.asked == 1

    run(scenario())


def test_the_next_block_is_there_before_it_is_needed() -> None:
    async def scenario() -> None:
        node = Node()
        await node.init(None)
        seen = set()
        for _ in range(3 * BLOCK):
            taken = node.producer_ids.take()
            assert taken is not None
            seen.add(taken)
            for _ in range(3):
                await asyncio.sleep(0)
        assert len(seen) == 3 * BLOCK

    run(scenario())
