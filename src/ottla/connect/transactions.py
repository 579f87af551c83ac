"""Transactions of one transactional id, one after the other, on one producer as long as that is safe.

librdkafka writes transactions v1: one producer epoch for many transactions. When a connection breaks or an answer is late
it sends EndTxn and TxnOffsetCommit again, by itself and without a word. The first copy may still be on its way: it would
end the next transaction before that is written, or take its offsets back. A new epoch refuses such a copy, so that a
producer that may have sent one is replaced before the next transaction.

A producer may have sent a copy only if a call took long. librdkafka waits at least four fifths of `retry.backoff.ms`
before it repeats a request, and 500 ms before it repeats offsets. A call that returned in less than half of that
repeated nothing. A new producer for every transaction would be as right and take about 85 ms each (2026-11-18, 2 shared
cores, one node).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.connect.sender import TIMEOUT_S, Sender, call
from ottla.model.user_error import UserError

_RETRY_BACKOFF_MS = 500
_MAX_RETRY_BACKOFF_MS = 1_000
_OFFSETS_RETRY_MS = 500
"""librdkafka's own pause before it repeats TxnOffsetCommit."""
_TRANSACTION_TIMEOUT_MS = 300_000
_LEAST_TIMEOUT_MS = 60_000
"""librdkafka's own default."""


class Transactions:
    def __init__(
        self,
        client: Mapping[str, str],
        transactional_id: str,
        clock: Callable[[], float] = time.monotonic,
        timeout_ms: int | None = None,
    ) -> None:
        """`timeout_ms` is lowered to what the broker accepts (`transaction.max.timeout.ms`); a timeout in `client` is not."""
        self._client = client
        self._fixed_timeout = "transaction.timeout.ms" in client
        self._settings: dict[str, Any] = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(client.get("transaction.timeout.ms", timeout_ms or _TRANSACTION_TIMEOUT_MS)),
            "retry.backoff.ms": client.get("retry.backoff.ms", _RETRY_BACKOFF_MS),
        }
        pauses_ms = (
            self._settings["retry.backoff.ms"],
            client.get("retry.backoff.max.ms", _MAX_RETRY_BACKOFF_MS),
            _OFFSETS_RETRY_MS,
        )
        self._safe_s = min(map(float, pauses_ms)) / 2 / 1000
        self._clock = clock
        self._began_at: float | None = None
        self._sender = self._new_sender()
        self._unsafe = False
        """The next transaction needs a new epoch: a transaction is open, or a request may have been repeated."""
        self._was_slow = False

    def renew(self) -> bool:
        """Call before each transaction: creates a new producer if the next transaction needs one, then returns True.

        After True, as after a start, the caller must read again what is committed: the new producer may have fenced a
        successor that has written meanwhile.
        """
        if self._unsafe:
            self._sender = self._new_sender()
            self._unsafe = False
            return True
        return False

    def begin(self) -> Sender:
        """A transaction; its records go through what is returned."""
        if self._unsafe:
            raise RuntimeError("the last transaction needs a new producer first: renew")
        self._unsafe, self._was_slow = True, False
        call(self._sender.producer.begin_transaction)
        self._began_at = self._clock()
        return self._sender

    @property
    def timeout_s(self) -> float:
        """What the broker has accepted."""
        return float(self._settings["transaction.timeout.ms"]) / 1000

    def too_long(self) -> UserError | None:
        """The reason why the open transaction cannot commit, if it has been open for longer than its timeout."""
        timeout_s = self.timeout_s
        if self._began_at is None or self._clock() - self._began_at < timeout_s:
            return None
        return UserError(
            f"the transaction of this task was open for longer than {timeout_s:.0f} s, so the broker ended it: lower "
            "maxOffsetsPerTrigger, or raise transaction.max.timeout.ms of the brokers and kafka.transaction.timeout.ms"
        )

    def send_offsets(self, offsets: list[Any], group: Any) -> None:
        self._timed(self._sender.producer.send_offsets_to_transaction, offsets, group, TIMEOUT_S)

    def commit(self) -> None:
        """After this everything that was sent since `begin` is visible. The sender has been flushed."""
        self._timed(self._sender.producer.commit_transaction, TIMEOUT_S)
        self._unsafe = self._was_slow
        self._began_at = None

    def abort(self, timeout_s: float) -> None:
        self._sender.producer.abort_transaction(timeout_s)

    def _new_sender(self) -> Sender:
        while True:
            sender = Sender(self._client, self._settings)
            try:
                call(sender.producer.init_transactions, TIMEOUT_S)
            except UserError as problem:
                timeout_ms = self._settings["transaction.timeout.ms"]
                if "INVALID_TRANSACTION_TIMEOUT" not in str(problem) or self._fixed_timeout:
                    raise
                if timeout_ms <= _LEAST_TIMEOUT_MS:
                    raise
                self._settings["transaction.timeout.ms"] = max(timeout_ms // 2, _LEAST_TIMEOUT_MS)
            else:
                return sender

    def _timed(self, function: Any, *arguments: Any) -> None:
        started = self._clock()
        call(function, *arguments)
        if self._clock() - started >= self._safe_s:
            self._was_slow = True
