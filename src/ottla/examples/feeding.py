"""Writes the events of an example into the log, on a thread of its own while Spark starts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import msgspec

from ottla.connect.sender import Outgoing, Sender
from ottla.examples.catalogue import Example, InputEvent
from ottla.model.user_error import UserError

_TIMEOUT_S = 30.0


def create_topics(servers: str, example: Example) -> None:
    """Raises UserError if a topic exists: its records would be counted, too."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    topics = [NewTopic(name, count, config={"retention.ms": "-1"}) for name, count in example.topics.items()]
    for name, created in admin.create_topics(topics).items():
        try:
            created.result(_TIMEOUT_S)
        except KafkaException as problem:
            raise UserError(
                f"the topic {name} cannot be created on {servers}: {problem.args[0].str()}. An example starts with "
                f"topics of its own: `ottla topic delete {name}` removes the topic of an earlier run"
            ) from problem


class Feeder:
    """A thread that writes all events. `written` counts them; `join` raises the failure of the thread."""

    def __init__(self, servers: str, events: Iterable[InputEvent]) -> None:
        self.written = 0
        self._failure: Exception | None = None
        self._servers = servers
        self._events = events
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        if self._failure is not None:
            raise UserError(f"the events were not written: {self._failure}") from self._failure

    def stop(self) -> None:
        """Ends the thread before all events are written."""
        self._stopping.set()
        self._thread.join()

    def _feed(self) -> None:
        try:
            sender = Sender({"bootstrap.servers": self._servers})
            sender.send(self._outgoing())
            sender.flush()
        except Exception as problem:  # noqa: BLE001 - the supervisor of the thread: `join` raises the failure
            self._failure = problem

    def _outgoing(self) -> Iterator[Outgoing]:
        for number, event in enumerate(self._events, 1):
            if self._stopping.is_set():
                return
            yield record_of(event)
            self.written = number


def record_of(event: InputEvent) -> Outgoing:
    value = event.value if isinstance(event.value, bytes) else msgspec.json.encode(event.value)
    return Outgoing(event.topic, event.key.encode(), value)
