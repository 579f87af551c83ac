"""Records into topics, each exactly once: one transaction per task that also holds the task's marker.

A writer is named by (application, task) and each of its works by a rising version (a micro-batch, a poll). The
transactional id is the name, so a new attempt fences the old one and ends what it left open. The marker (`markers.py`) is
an offset that the transaction commits: it is there if and only if the records are. An attempt whose marker is there
already writes nothing (Kafka Streams keeps its progress in the same place). The marker also keeps how many rows and bytes
there were, and a checksum of what identifies the rows: the same work with other rows is an error, not silence.

A marker is needed until its version is noted elsewhere (Spark's commit log, a connector's position). If a version lasts
longer than `KEEP_S`, the transaction of a later task commits the markers of earlier tasks again. Nothing else changes these
markers while the version lasts, and a task that was overtaken is fenced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from ottla.connect.clients import consumer_settings
from ottla.connect.markers import (
    TASKS_IN_A_GROUP,
    Marker,
    ensure_marker_topic,
    group_of,
    markers_of,
    read_marker,
    read_version_1,
)
from ottla.connect.sender import Outgoing, WrittenRows
from ottla.connect.transactions import Transactions
from ottla.model.marker_groups import MARKER_TOPIC, writer_client_id
from ottla.model.user_error import UserError

KEEP_S = 3600.0
_kept_at: dict[str, float] = {}
"""Group -> when this process last looked for markers of the version to commit again."""


class Fenced(UserError):
    """A newer attempt at the same work has begun: this attempt cannot write any more."""


class ExactlyOnce:
    """One attempt at one version of one writer's work: `with` it, ask `done`, else `write`.

    `output_topic`: where format 1 of the markers may have one. `timeout_ms`: how long a transaction may stay open. `writer`:
    the writer's name in the client id (default: the application).
    """

    def __init__(
        self,
        client: Mapping[str, str],
        application: str,
        task: int,
        version: int,
        output_topic: str | None,
        *,
        timeout_ms: int | None = None,
        writer: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = {"client.id": writer_client_id(writer or application), **client}
        self._application, self._task = application, task
        self._name = f"ottla-{application}-{task}"
        self.version = version
        self._output_topic = output_topic or MARKER_TOPIC
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._consumer: Any = None
        self._is_marked = False
        """A marker of format 2 was read or written: the topic of the markers exists, and format 1 does not count."""

    def __enter__(self) -> Self:
        from confluent_kafka import Consumer

        self._group = group_of(self._application, self._task)
        _kept_at.setdefault(self._group, self._clock())
        self._transactions = Transactions(self._client, self._name, timeout_ms=self._timeout_ms)
        self._consumer = Consumer(consumer_settings(self._client, self._group))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def reached(self) -> int | None:
        """The last version that is there."""
        marker = self._marker()
        return None if marker is None else marker.version

    def _marker(self) -> Marker | None:
        marker = read_marker(self._consumer, self._task)
        if marker is not None:
            self._is_marked = True
            return marker
        return read_version_1(self._client, self._application, self._task, self._output_topic)

    def done(self) -> Marker | None:
        """The marker of this version or of a later one, when it is there."""
        marker = self._marker()
        return None if marker is None or marker.version < self.version else marker

    def write(
        self, records: Iterable[Outgoing], identities: Callable[[], int | None] = lambda: None
    ) -> WrittenRows | Marker:
        """All records and the marker become visible together; nothing of them when this raises.

        Returns the marker of a successor that has written this version meanwhile. `identities` is called when all records
        were taken.
        """
        if self._transactions.renew():
            done = self.done()
            if done is not None:
                return done
        if not self._is_marked:
            ensure_marker_topic(self._client)
        sender = self._transactions.begin()
        try:
            written = sender.send(records)
            sender.flush()
            self._end(
                {
                    self._task: Marker(
                        version=self.version, rows=written.rows, size=written.size, identities=identities()
                    )
                }
                | self._older_markers()
            )
        except BaseException as problem:  # any error: the transaction must not stay open; raised again below
            self._give_up(problem)
            raise
        return written

    def keep(self) -> None:
        """Commits the marker again, so that the broker does not expire it. For a writer of many versions."""
        self._transactions.renew()
        marker = self._marker()
        if marker is None:
            return
        if not self._is_marked:
            ensure_marker_topic(self._client)
        self._transactions.begin()
        try:
            self._end({self._task: marker})
        except BaseException as problem:  # as in `write`
            self._give_up(problem)
            raise

    def _end(self, markers: Mapping[int, Marker]) -> None:
        from confluent_kafka import TopicPartition

        places = [
            TopicPartition(MARKER_TOPIC, task % TASKS_IN_A_GROUP, marker.version + 1, marker.to_json())
            for task, marker in sorted(markers.items())
        ]
        self._transactions.send_offsets(places, self._consumer.consumer_group_metadata())
        self._transactions.commit()
        self._is_marked = True

    def _older_markers(self) -> dict[int, Marker]:
        """Markers of this version that other tasks of the group have written, if it is time to commit them again."""
        now = self._clock()
        if now - _kept_at[self._group] < KEEP_S:
            return {}
        _kept_at[self._group] = now
        first = self._task // TASKS_IN_A_GROUP * TASKS_IN_A_GROUP
        group = range(first, first + TASKS_IN_A_GROUP)
        markers = markers_of(self._client, self._application, stable=False)
        return {
            task: marker
            for task, marker in markers.items()
            if task in group and task != self._task and marker.version == self.version
        }

    def _give_up(self, problem: BaseException) -> None:
        from confluent_kafka import KafkaException

        too_long = self._transactions.too_long()
        try:
            self._transactions.abort(10)
        except KafkaException as left:  # the next attempt's init_transactions ends what is left open
            if too_long is None and left.args[0].name() == "_FENCED":
                raise Fenced("another attempt at this work has begun; this one is fenced") from problem
        if too_long is not None:
            raise too_long from problem

    @property
    def timeout_s(self) -> float:
        """How long a transaction of any attempt at this work can last."""
        return self._transactions.timeout_s

    def done_by_another(self, timeout_s: float) -> Marker | None:
        """What the attempt that fenced this one wrote, as soon as it has; None when it does not come to an end."""
        deadline = time.monotonic() + timeout_s
        while (done := self.done()) is None and time.monotonic() < deadline:
            time.sleep(0.5)
        return done
