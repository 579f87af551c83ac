"""Records into topics, each exactly once: one transaction per task that also holds the task's marker.

A writer is named by (application, task) and each of its works by a rising version (a micro-batch, a poll). The
transactional id is the name, so a new attempt fences the old one and ends what it left open. The marker is the
committed offset `version + 1` of a consumer group of that name, sent to the transaction: it is there if and only if
the records are. An attempt whose marker is there already writes nothing (Kafka Streams keeps its progress in the same
place). The marker also keeps how many rows and bytes there were: the same work with other content is an error, not
silence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from ottla.connect.clients import consumer_settings, producer_settings
from ottla.tables.topics import TableError

TIMEOUT_S = 60.0
MARKER_TOPIC = "__ottla_exactly_once"
_PASSING = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "UNSTABLE_OFFSET_COMMIT")


class Fenced(TableError):
    """Another attempt at the same work has begun: this one cannot write any more."""


class Outgoing(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]] | None = None
    partition: int = -1
    timestamp_ms: int = 0


class Written(NamedTuple):
    rows: int
    size: int


class Sender:
    """A producer that remembers the first failure; used plain (idempotent) or inside a transaction."""

    def __init__(self, client: Mapping[str, str], extra: Mapping[str, Any] | None = None) -> None:
        from confluent_kafka import Producer

        self._failures: list[str] = []
        reports = {"on_delivery": _remember(self._failures), "delivery.report.only.error": True}
        self.producer = Producer(producer_settings(client) | reports | dict(extra or {}))

    def send(self, records: Iterable[Outgoing], *, leave_out_too_large: bool = False) -> Written:
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
                    raise TableError(
                        f"a record for {topic} of {len(value or b'') + len(key or b''):,} bytes is larger than this producer "
                        "sends: raise its max.request.size, and max.message.bytes of the topic"
                    ) from problem
            rows += 1
            size += len(value or b"") + len(key or b"")
            if not rows & 1023:
                poll(0)
                self.check()
        return Written(rows, size)

    def flush(self, timeout_s: float = 300.0) -> None:
        from confluent_kafka import KafkaException

        try:
            left = self.producer.flush(timeout_s)
        except SystemError:  # how confluent-kafka reports a fatal error (fenced) from inside a delivery report
            self.check()
            raise TableError("another attempt at this work has begun; this one is fenced") from None
        except KafkaException as error:  # and one that came before any report
            self.check()
            raise TableError(f"nothing more can be written: {error.args[0].str()} ({error.args[0].name()})") from None
        self.check()
        if left:
            raise TableError(f"{left} records were not acknowledged in {timeout_s:.0f} s: is the broker there?")

    def check(self) -> None:
        if self._failures:
            raise TableError(self._failures[0])


def _remember(failures: list[str]) -> Callable[[Any, Any], None]:
    """A delivery report that keeps the first failure; it does not know the sender, so that the producer ends with it."""

    def report(error: Any, message: Any) -> None:
        if error is not None and not failures:
            failures.append(f"a record for {message.topic()} was not written: {error.str()} ({error.name()})")

    return report


class ExactlyOnce:
    """One attempt at one version of one writer's work: `with` it, ask `done`, else `write`."""

    def __init__(
        self, client: Mapping[str, str], application: str, task: int, version: int, marker_topic: str | None
    ) -> None:
        self._client = client
        self._name = f"ottla-{application}-{task}"
        self.version = version
        self._marker_topic = marker_topic or MARKER_TOPIC
        self._own_marker_topic = marker_topic is None
        self._consumer: Any = None

    def __enter__(self) -> Self:
        from confluent_kafka import Consumer

        extra = {"transactional.id": self._name, "transaction.timeout.ms": 300_000}
        self._sender = Sender(self._client, extra | _given(self._client, "transaction.timeout.ms"))
        _call(self._sender.producer.init_transactions, TIMEOUT_S)
        if self._own_marker_topic:
            ensure_marker_topic(self._client, self._marker_topic)
        self._consumer = Consumer(consumer_settings(self._client, self._name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def reached(self) -> int | None:
        """The last version that is there."""
        marker = self._marker()
        return marker.offset - 1 if marker.offset >= 0 else None

    def _marker(self) -> Any:
        from confluent_kafka import TopicPartition

        marker = _call(self._consumer.committed, [TopicPartition(self._marker_topic, 0)], TIMEOUT_S)[0]
        if marker.error is not None:
            raise TableError(f"the marker of {self._name} cannot be read: {marker.error.str()}")
        return marker

    def done(self) -> Written | None:
        """What the committed attempt wrote, when this version is already there."""
        marker = self._marker()
        if marker.offset <= self.version:
            return None
        noted = json.loads(marker.metadata or "{}")
        return Written(int(noted.get("rows", -1)), int(noted.get("bytes", -1)))

    def write(self, records: Iterable[Outgoing]) -> Written:
        """All records and the marker become visible together; nothing of them when this raises."""
        from confluent_kafka import KafkaException, TopicPartition

        producer = self._sender.producer
        _call(producer.begin_transaction)
        try:
            written = self._sender.send(records)
            self._sender.flush()
            note = json.dumps({"rows": written.rows, "bytes": written.size, "version": self.version})
            marker = TopicPartition(self._marker_topic, 0, self.version + 1, note)
            group = self._consumer.consumer_group_metadata()
            _call(producer.send_offsets_to_transaction, [marker], group, TIMEOUT_S)
            _call(producer.commit_transaction, TIMEOUT_S)
        except BaseException as problem:  # whatever it is, the transaction must not stay open; it goes on up
            try:
                producer.abort_transaction(10)
            except KafkaException as left:  # the next attempt's init_transactions ends what is left open
                if left.args[0].name() == "_FENCED":
                    raise Fenced("another attempt at this work has begun; this one is fenced") from problem
            raise
        return written

    def done_by_another(self, timeout_s: float) -> Written | None:
        """What the attempt that fenced this one wrote, as soon as it has; None when it does not come to an end."""
        deadline = time.monotonic() + timeout_s
        while (done := self.done()) is None and time.monotonic() < deadline:
            time.sleep(0.5)
        return done


def ensure_marker_topic(client: Mapping[str, str], name: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import KafkaError, NewTopic

    from ottla.connect.clients import librdkafka_settings

    admin = AdminClient(librdkafka_settings(client))
    if name in admin.list_topics(timeout=TIMEOUT_S).topics:
        return
    try:
        admin.create_topics([NewTopic(name, 1, config={"cleanup.policy": "compact"})])[name].result(TIMEOUT_S)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TableError(f"the topic {name} cannot be created: {problem.args[0].str()}") from problem


def _given(client: Mapping[str, str], name: str) -> dict[str, Any]:
    return {name: client[name]} if name in client else {}


def _call(function: Any, *arguments: Any) -> Any:
    """Tried again while a coordinator moves or loads; transactional calls say themselves whether they may be."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return function(*arguments)
        except KafkaException as problem:
            error = problem.args[0]
            again = error.retriable() or error.name() in _PASSING
            if not again or time.monotonic() > deadline:
                raise TableError(f"{function.__name__}: {error.str()} ({error.name()})") from problem
        time.sleep(0.1)
