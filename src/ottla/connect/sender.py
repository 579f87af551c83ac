"""Records into topics with librdkafka: a producer that remembers the first failure, and calls that are tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.connect.clients import producer_settings
from ottla.model.user_error import UserError

TIMEOUT_S = 60.0
_PASSING = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "UNSTABLE_OFFSET_COMMIT")


class Outgoing(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]] | None = None
    partition: int = -1
    timestamp_ms: int = 0


class WrittenRows(NamedTuple):
    rows: int
    size: int


class Sender:
    """A producer that remembers the first failure; used plain (idempotent) or inside a transaction."""

    def __init__(self, client: Mapping[str, str], extra: Mapping[str, Any] | None = None) -> None:
        from confluent_kafka import Producer

        self._failures: list[str] = []
        reports = {"on_delivery": _remember(self._failures), "delivery.report.only.error": True}
        self.producer = Producer(producer_settings(client) | reports | dict(extra or {}))

    def send(self, records: Iterable[Outgoing], *, leave_out_too_large: bool = False) -> WrittenRows:
        from confluent_kafka import KafkaException

        rows = size = 0
        produce, poll = self.producer.produce, self.producer.poll
        for topic, key, value, headers, partition, timestamp_ms in records:
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=timestamp_ms, headers=headers)
                    break
                except BufferError:
                    poll(0.1)
                except KafkaException as problem:
                    if problem.args[0].name() != "MSG_SIZE_TOO_LARGE":
                        raise
                    if leave_out_too_large:
                        break
                    raise UserError(
                        f"a record for {topic} of {len(value or b'') + len(key or b''):,} bytes is larger than this producer "
                        "sends: raise its max.request.size, and max.message.bytes of the topic"
                    ) from problem
            rows += 1
            size += len(value or b"") + len(key or b"")
            if not rows & 1023:
                poll(0)
                self.check()
        return WrittenRows(rows, size)

    def flush(self, timeout_s: float = 300.0) -> None:
        from confluent_kafka import KafkaException

        try:
            left = self.producer.flush(timeout_s)
        except SystemError:  # how confluent-kafka reports a fatal error (fenced) from inside a delivery report
            self.check()
            raise UserError("another attempt at this work has begun; this one is fenced") from None
        except KafkaException as error:  # a fatal error from before any delivery report
            self.check()
            raise UserError(f"nothing more can be written: {error.args[0].str()} ({error.args[0].name()})") from None
        self.check()
        if left:
            raise UserError(f"{left} records were not acknowledged in {timeout_s:.0f} s: is the broker there?")

    def check(self) -> None:
        if self._failures:
            raise UserError(self._failures[0])


def _remember(failures: list[str]) -> Callable[[Any, Any], None]:
    """A delivery report that keeps the first failure.

    It has no reference to the sender, so that the producer ends with the sender.
    """

    def report(error: Any, message: Any) -> None:
        if error is None or failures:
            return
        if error.name() == "MSG_SIZE_TOO_LARGE":
            size = len(message.key() or b"") + len(message.value() or b"")
            failures.append(
                f"a record for {message.topic()} of {size:,} bytes is larger than the topic allows: raise its "
                "max.message.bytes"
            )
        else:
            failures.append(f"a record for {message.topic()} was not written: {error.str()} ({error.name()})")

    return report


def call(function: Any, *arguments: Any) -> Any:
    """Retries while a coordinator moves or loads; errors of transactional calls carry whether a retry is safe."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return function(*arguments)
        except KafkaException as problem:
            error = problem.args[0]
            again = error.retriable() or error.name() in _PASSING
            if not again or time.monotonic() > deadline:
                raise UserError(f"{function.__name__}: {error.str()} ({error.name()})") from problem
        time.sleep(0.1)
