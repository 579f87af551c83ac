"""Where OpenLineage events go: an HTTP endpoint, a file of JSON lines, or a topic. Lineage never stops a pipeline.

A thread sends the events of a bounded queue. An event that cannot be sent, or finds the queue full, is lost, and the first
loss is logged.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import Request

from ottla.connect.clients import librdkafka_settings, quiet
from ottla.env.http_request import open_request
from ottla.env.logging import get_logger
from ottla.model.user_error import UserError

MOST_QUEUED = 1000
TOKEN = "OTTLA_LINEAGE_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with the bearer token of an HTTP endpoint."""
_TIMEOUT_S = 5.0
_CLOSE_S = 10.0
_log = get_logger(__name__)
Write = Callable[[bytes], None]


def lineage_writer(destination: str, client: Mapping[str, str]) -> Write:
    """A function that delivers one event. UserError for a destination that is none of the three kinds."""
    scheme, _, place = destination.partition(":")
    if scheme in ("http", "https"):
        return _to_http(destination)
    if scheme == "file" and place:
        return _to_file(place.removeprefix("//"))
    if scheme == "topic" and place:
        return _to_topic(place, client)
    raise UserError(f"lineage goes to http(s)://HOST/api/v1/lineage, file:PATH or topic:NAME, not {destination!r}")


def _to_http(url: str) -> Write:
    token = os.environ.get(TOKEN)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def post(data: bytes) -> None:
        request = Request(url, data=data, headers=headers, method="POST")  # noqa: S310 - http(s) only, as checked above
        with open_request(request, _TIMEOUT_S) as answer:
            answer.read(1)

    return post


def _to_file(path: str) -> Write:
    place = os.path.abspath(path)

    def append(data: bytes) -> None:
        with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            file.write(data + b"\n")

    return append


def _to_topic(topic: str, client: Mapping[str, str]) -> Write:
    from confluent_kafka import Producer

    producer = Producer({**librdkafka_settings(quiet(client)), "message.timeout.ms": int(_TIMEOUT_S * 1000)})

    def produce(data: bytes) -> None:
        failures: list[Any] = []
        producer.produce(topic, data, on_delivery=lambda error, _: failures.append(error) if error else None)
        if producer.flush(_TIMEOUT_S + 1) or failures:
            raise OSError(str(failures[0]) if failures else "the brokers do not answer")

    return produce


class LineageQueue:
    """`close` it: the call waits until the events are sent, for a limited time."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_QUEUED)
        self.lost = 0
        self._thread = threading.Thread(target=self._work, name="ottla-lineage", daemon=True)
        self._thread.start()

    def close(self) -> None:
        try:
            self._events.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def send(self, event: dict[str, Any]) -> None:
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._lose(f"{MOST_QUEUED} events wait")

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._write(json.dumps(event).encode())
            except (OSError, URLError) as problem:
                self._lose(str(problem))

    def _lose(self, reason: str) -> None:
        self.lost += 1
        if self.lost == 1:
            _log.warning("lineage.lost", reason=reason)
