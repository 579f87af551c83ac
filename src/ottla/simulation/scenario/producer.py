"""The producers of a scenario, with the rules of Kafka's producer: batches, retries, batches under way, sequence numbers,
and the two timeouts.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ErrorCode
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.runtime.node_client import NodeClient, NodeUnavailable
from ottla.simulation.scenario.batches import (
    ProducerBatch,
    SilentConnection,
    encode,
    error_code_of,
    records_of_a_batch,
    request_for,
)
from ottla.simulation.scenario.facts import ProducerAck, SendAttempt, SentRecord
from ottla.simulation.scenario.view import RETRY_S, connection

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.simulation.clients import Clients
    from ottla.simulation.scenario.facts import Facts, TopicPartition
    from ottla.simulation.scenario.plan import ProducerPlan, TopicPlan
    from ottla.simulation.scenario.view import ClientView

_MOST_RETRY_MS = 1_000.0
"""retry.backoff.max.ms"""
_LEAST_PAUSE_S = 0.001
_NEW_SEQUENCE = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
_DELIVERED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class ScenarioProducer:
    def __init__(
        self, producer_plan: ProducerPlan, topic: TopicPlan, clients: Clients, view: ClientView, facts: Facts
    ) -> None:
        self.plan = producer_plan
        self.clients = clients
        self.view = view
        self._facts = facts
        self._clients_by_broker: dict[NodeId, NodeClient] = {}
        self._silent: dict[NodeId, SilentConnection] = {}
        self._lanes = [Lane(self, (topic.name, index)) for index in range(topic.partitions)]
        self._created = 0
        self.stopped = False

    @property
    def done(self) -> bool:
        """All records are acknowledged, or given up."""
        return (self.stopped or self._created == self.plan.count) and not any(lane.busy for lane in self._lanes)

    def now_ms(self) -> float:
        return self.clients.world.now_ms

    async def run(self) -> None:
        await asyncio.sleep(self.plan.start_ms / 1000 - asyncio.get_running_loop().time())
        await self.view.refresh()
        self.clients.spawn(self._expire())
        began_ms = self.now_ms()
        pause_s = max(1 / self.plan.rate, _LEAST_PAUSE_S)
        while self._created < self.plan.count and not self.stopped:
            due = min(self.plan.count, int((self.now_ms() - began_ms) * self.plan.rate / 1000 + 1e-6) + 1)
            while self._created < due:
                self._create()
            next_ms = began_ms + self._created * 1000 / self.plan.rate
            await asyncio.sleep(max((next_ms - self.now_ms()) / 1000, pause_s / 2))

    async def _expire(self) -> None:
        while not self.done:
            await asyncio.sleep(RETRY_S)
            for lane in self._lanes:
                lane.expire()

    def _create(self) -> None:
        number = self._created
        self._created += 1
        key = b"k%d" % (number % self.plan.keys) if self.plan.keys else None
        place = number if key is None else zlib.crc32(key)
        lane = self._lanes[place % len(self._lanes)]
        record = SentRecord(self.plan.name, number, lane.where, key, self.plan.acks, self.now_ms())
        self._facts.records[record.id] = record
        lane.offer(record)

    def connection(self, broker: NodeId) -> NodeClient:
        client = self._clients_by_broker.get(broker)
        if client is None:
            client = connection(broker, self.plan.request_timeout_ms, in_flight=self.plan.in_flight)
            self._clients_by_broker[broker] = client
        return client

    def silent(self, broker: NodeId) -> SilentConnection:
        return self._silent.setdefault(broker, SilentConnection(f"10.0.0.{broker}", 9092))


class Lane:
    """The records of one producer for one partition, in order."""

    def __init__(self, producer: ScenarioProducer, where: TopicPartition) -> None:
        self.where = where
        self._producer = producer
        self._plan = producer.plan
        self._waiting: deque[SentRecord] = deque()
        self._batches: list[ProducerBatch] = []
        """Sent, or to be sent again, and not acknowledged; in order."""
        self._most = records_of_a_batch(producer.plan.record_bytes)
        self._producer_id = self._producer_epoch = -1
        self._sequence = 0
        self._asking = False
        self._renumbering = False
        self._leaderless = False
        """Without a leader all batches wait, in order."""

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._batches)

    def offer(self, record: SentRecord) -> None:
        self._waiting.append(record)
        self.pump()

    def pump(self) -> None:
        """Send what may be sent now."""
        now_ms = self._producer.now_ms()
        if self._leaderless:
            return
        if self._plan.idempotence and (self._producer_id < 0 or self._renumbering):
            self._ask_for_an_id()
            return
        under_way = sum(batch.under_way for batch in self._batches)
        for batch in self._batches:
            if under_way >= self._plan.in_flight:
                return
            if batch.under_way:
                continue
            if batch.retry_at_ms > now_ms:
                if self._plan.idempotence:
                    return  # the order of sequence numbers
                continue
            if self._plan.idempotence and batch.tries and under_way and self._batches[0] is not batch:
                return  # a batch that failed goes again when the batches before have their answers
            self._start(batch)
            under_way += 1
        while under_way < self._plan.in_flight and self._waiting:
            self._start(self._new_batch())
            under_way += 1

    def _new_batch(self) -> ProducerBatch:
        records = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        batch = ProducerBatch(records, [], self._sequence if self._plan.idempotence else -1)
        self._sequence += len(records)
        for record in records:
            record.attempts = batch.attempts
        self._batches.append(batch)
        return batch

    def _start(self, batch: ProducerBatch) -> None:
        batch.under_way = True
        self._producer.clients.spawn(self._deliver(batch))

    async def _deliver(self, batch: ProducerBatch) -> None:
        view = self._producer.view
        leader, topic_id = view.leader(self.where), view.topic_ids.get(self.where[0])
        if leader is None or topic_id is None:
            batch.under_way = False
            if not self._leaderless:
                await self._until_a_leader()
            return
        attempt = SendAttempt(self._producer.now_ms(), leader)
        batch.attempts.append(attempt)
        batch.tries += 1
        data = encode(batch, self._plan.record_bytes, self._producer_id, self._producer_epoch)
        request = request_for(topic_id, self.where[1], data, self._plan.acks, self._plan.request_timeout_ms)
        if self._plan.acks == 0:
            await self._without_answer(batch, attempt, request)
            return
        try:
            response = await self._producer.connection(leader).send(request)
        except NodeUnavailable as error:
            attempt.answer = f"no answer: {error}"
            attempt.answered_ms = self._producer.now_ms()
            await self._again(batch, attempt.answer)
            return
        await self._on_answer(batch, attempt, *error_code_of(response))

    async def _without_answer(self, batch: ProducerBatch, attempt: SendAttempt, request: Any) -> None:
        try:
            await self._producer.silent(attempt.broker).send(request)
        except OSError as error:
            attempt.answer = f"not sent: {error}"
            await self._again(batch, attempt.answer)
            return
        self._acknowledged(batch, attempt.broker, -1)

    async def _on_answer(self, batch: ProducerBatch, attempt: SendAttempt, code: int, base_offset: int) -> None:
        attempt.answered_ms = self._producer.now_ms()
        error = ErrorCode(code)
        if error in _DELIVERED:
            self._acknowledged(batch, attempt.broker, base_offset)
            return
        attempt.answer = error.name
        if self._plan.idempotence and error in _NEW_SEQUENCE:
            self._renumbering = self._renumbering or self._batches[0] is batch
            await self._again(batch, error.name)
        elif error.retriable or error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            await self._again(batch, error.name)
        else:
            self._give_up(batch, error.name)

    def _acknowledged(self, batch: ProducerBatch, broker: NodeId, base_offset: int) -> None:
        if batch.given_up:
            return
        now_ms = self._producer.now_ms()
        for index, record in enumerate(batch.records):
            record.acknowledged = ProducerAck(now_ms, broker, base_offset + index if base_offset >= 0 else -1)
        self._batches.remove(batch)
        self.pump()

    async def _again(self, batch: ProducerBatch, reason: str) -> None:
        """Send the batch again after a pause, or give up."""
        if batch.given_up:
            return
        now_ms = self._producer.now_ms()
        if now_ms - batch.created_ms >= self._plan.delivery_timeout_ms or batch.tries > self._plan.retries:
            self._give_up(batch, reason)
            return
        batch.under_way = False
        pause_ms = min(RETRY_S * 1000 * 2 ** min(batch.waits, 4), _MOST_RETRY_MS)
        batch.waits += 1
        batch.retry_at_ms = now_ms + pause_ms
        await self._producer.view.refresh()
        await asyncio.sleep(max(0.0, (batch.retry_at_ms - self._producer.now_ms()) / 1000))
        batch.retry_at_ms = 0.0
        self.pump()

    async def _until_a_leader(self) -> None:
        self._leaderless = True
        while self._producer.view.leader(self.where) is None:
            await self._producer.view.refresh()
        self._leaderless = False
        self.pump()

    def expire(self) -> None:
        """delivery.timeout.ms counts from the creation of a record, whether the record was sent or not."""
        before_ms = self._producer.now_ms() - self._plan.delivery_timeout_ms
        for batch in [batch for batch in self._batches if batch.created_ms <= before_ms]:
            self._give_up(batch, batch.attempts[-1].answer or "no answer" if batch.attempts else "no leader")
        while self._waiting and self._waiting[0].created_ms <= before_ms:
            record = self._waiting.popleft()
            record.failed_ms, record.failure = self._producer.now_ms(), "not sent in time"

    def _give_up(self, batch: ProducerBatch, reason: str) -> None:
        if batch.given_up:
            return
        for record in batch.records:
            record.failed_ms, record.failure = self._producer.now_ms(), reason
        batch.given_up = True
        self._batches.remove(batch)
        self._renumbering = self._plan.idempotence  # the sequence has a gap
        self.pump()

    # -------------------------------------------------------------------------------------------------------- sequences

    def _ask_for_an_id(self) -> None:
        if not self._asking and not any(batch.under_way for batch in self._batches):
            self._asking = True
            self._producer.clients.spawn(self._new_id())

    async def _new_id(self) -> None:
        """A new producer id: the batches that have no answer get new sequence numbers."""
        brokers = [node.node_id for node in self._producer.clients.nodes if node.spec.partitions]
        while True:
            for broker in brokers:
                try:
                    response = await self._producer.connection(broker).send(
                        InitProducerIdRequest(None, 60_000), timeout_ms=2_000
                    )
                except NodeUnavailable:
                    continue
                if not response.error_code:
                    self._number(response.producer_id, response.producer_epoch)
                    return
            await asyncio.sleep(RETRY_S)

    def _number(self, producer_id: int, producer_epoch: int) -> None:
        self._producer_id, self._producer_epoch, self._sequence = producer_id, producer_epoch, 0
        for batch in self._batches:
            batch.sequence = self._sequence
            self._sequence += len(batch.records)
        self._asking = self._renumbering = False
        self.pump()
