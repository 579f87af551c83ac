"""A live tail: a thread reads from the end; the page gets what a person can read, and true counts of the rest.

Memory is bounded by the client's queue and by what waits for the page. Messages beyond what a person can read in time
are counted, not kept.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from ottla.console.errors import ConsoleError
from ottla.console.messages.filters import Predicate
from ottla.console.messages.reach import Client
from ottla.console.messages.record import BrowsedRecord, from_message
from ottla.console.messages.span import consumer, whole

_KEPT = 40
"""Messages that wait for the page's next refresh."""


class Tail:
    def __init__(self, client: Client, topic: str, partitions: frozenset[int], predicate: Predicate | None) -> None:
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._predicate = predicate
        self._stopped = threading.Event()
        self._waiting: deque[Any] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self.seen = 0
        self.matched = 0
        self.error = ""
        self.started = time.monotonic()
        self.reading = threading.Event()
        """Set once the reader stands at the end: what is written from now on is seen."""
        self._thread = threading.Thread(target=self._run, name=f"tail-{topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def take(self) -> list[BrowsedRecord]:
        """The newest messages since the last call, newest first."""
        with self._lock:
            taken = [from_message(message) for message in reversed(self._waiting)]
            self._waiting.clear()
        return taken

    def _run(self) -> None:
        try:
            with consumer(self._client) as reader:
                self._follow(reader)
        except ConsoleError as error:
            self.error = error.message
        except Exception as error:  # noqa: BLE001 - a supervisor: the page shows why the tail ended
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.reading.set()

    def _follow(self, reader: Any) -> None:
        from confluent_kafka import TopicPartition

        span = whole(reader, self._topic, self._partitions, as_far_as_led=True)
        reader.assign([TopicPartition(self._topic, index, s.end) for index, s in span.stretches.items()])
        self.reading.set()
        while not self._stopped.is_set():
            messages = [message for message in reader.consume(5_000, 0.2) if message.error() is None]
            self.seen += len(messages)
            if self._predicate is not None:
                predicate = self._predicate
                messages = [message for message in messages if predicate(message)]
            self.matched += len(messages)
            with self._lock:
                self._waiting.extend(messages[-_KEPT:])
