"""Aborts transactions past their timeout, and removes unused transactional ids."""

from __future__ import annotations

from ottla.coordinator.decisions import CoordinatorAnswer
from ottla.coordinator.transactions.completion import TransactionTimers
from ottla.coordinator.transactions.end_transaction import EndTransaction
from ottla.coordinator.transactions.records import TransactionRecord
from ottla.coordinator.transactions.shard_context import TransactionDecision, TransactionShardContext
from ottla.env.logging import get_logger
from ottla.model.decision import Decision
from ottla.model.errors import KafkaError

log = get_logger(__name__)

TIMEOUT_KEY = ("timeouts",)
EXPIRY_KEY = ("expiry",)
MAX_TOMBSTONES = 1_000
"""The limit of one round; the next round follows at once."""


class TransactionExpiry:
    def __init__(self, context: TransactionShardContext, ending: EndTransaction, timers: TransactionTimers) -> None:
        self._context = context
        self._ending = ending
        self._timers = timers
        self._ongoing: set[str] = set()

    def note_ongoing(self, transactional_id: str) -> None:
        """A transaction is open; the rounds go on while any transaction is open."""
        if not self._ongoing:
            self._schedule_timeouts()
        self._ongoing.add(transactional_id)

    def note_ended(self, transactional_id: str) -> None:
        self._ongoing.discard(transactional_id)
        if not self._ongoing:
            self._timers.cancel(TIMEOUT_KEY)

    def start(self) -> None:
        """The shard is loaded: deadlines before the load had no effect."""
        self.schedule()
        if self._ongoing:
            self._schedule_timeouts()

    def schedule(self) -> None:
        interval_ms = self._context.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._timers.schedule(EXPIRY_KEY, interval_ms, self.expire)

    def _schedule_timeouts(self) -> None:
        interval_ms = self._context.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._timers.schedule(TIMEOUT_KEY, interval_ms, self.abort_timed_out)

    def abort_timed_out(self) -> TransactionDecision:
        """One round over the open transactions; schedules the next round."""
        now_ms = self._context.clock.time_ms()
        records: list[TransactionRecord] = []
        answers: list[CoordinatorAnswer] = []
        for transactional_id in sorted(self._ongoing):
            metadata = self._context.transactions[transactional_id]
            if not metadata.is_timed_out(now_ms):
                continue
            try:
                decision = self._ending.fence(metadata, lambda _: None)
            except KafkaError as error:
                log.warning("transaction.not_aborted", transactional_id=transactional_id, reason=error.message)
                continue
            log.info("transaction.timed_out", transactional_id=transactional_id, timeout_ms=metadata.timeout_ms)
            records += decision.records
            answers += decision.response
        self._schedule_timeouts()
        return Decision(answers, records, atomic=False)

    def expire(self) -> TransactionDecision:
        """One round over all ids; schedules the next round."""
        now_ms = self._context.clock.time_ms()
        expiration_ms = self._context.settings.transactional_id_expiration_ms
        expired = [
            TransactionRecord(transactional_id, None)
            for transactional_id, metadata in self._context.transactions.items()
            if metadata.is_expired(now_ms, expiration_ms)
        ][:MAX_TOMBSTONES]
        if expired:
            log.info("transactional_ids.expired", count=len(expired))
        if len(expired) == MAX_TOMBSTONES:
            self._timers.schedule(EXPIRY_KEY, 0, self.expire)
        else:
            self.schedule()
        return Decision([], expired, atomic=False)
