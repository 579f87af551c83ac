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
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from ottla.connect.clients import consumer_settings
from ottla.connect.sender import TIMEOUT_S, Outgoing, WrittenRows, call
from ottla.connect.transactions import Transactions
from ottla.model.user_error import UserError

MARKER_TOPIC = "__ottla_exactly_once"


class Fenced(UserError):
    """A newer attempt at the same work has begun: this attempt cannot write any more."""


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

        self._transactions = Transactions(self._client, self._name)
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

        marker = call(self._consumer.committed, [TopicPartition(self._marker_topic, 0)], TIMEOUT_S)[0]
        if marker.error is not None:
            raise UserError(f"the marker of {self._name} cannot be read: {marker.error.str()}")
        return marker

    def done(self) -> WrittenRows | None:
        """What the committed attempt wrote, when this version is already there."""
        marker = self._marker()
        if marker.offset <= self.version:
            return None
        noted = json.loads(marker.metadata or "{}")
        return WrittenRows(int(noted.get("rows", -1)), int(noted.get("bytes", -1)))

    def write(self, records: Iterable[Outgoing]) -> WrittenRows:
        """All records and the marker become visible together; nothing of them when this raises."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._transactions.renew():
            done = self.done()
            if done is not None:
                return done
        sender = self._transactions.begin()
        try:
            written = sender.send(records)
            sender.flush()
            note = json.dumps({"rows": written.rows, "bytes": written.size, "version": self.version})
            marker = TopicPartition(self._marker_topic, 0, self.version + 1, note)
            group = self._consumer.consumer_group_metadata()
            self._transactions.send_offsets([marker], group)
            self._transactions.commit()
        except BaseException as problem:  # any error: the transaction must not stay open; raised again below
            try:
                self._transactions.abort(10)
            except KafkaException as left:  # the next attempt's init_transactions ends what is left open
                if left.args[0].name() == "_FENCED":
                    raise Fenced("another attempt at this work has begun; this one is fenced") from problem
            raise
        return written

    def done_by_another(self, timeout_s: float) -> WrittenRows | None:
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
            raise UserError(f"the topic {name} cannot be created: {problem.args[0].str()}") from problem
