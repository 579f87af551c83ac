"""Where audit events go: `topic[:NAME]`, `file:PATH`, `syslog+udp://HOST:PORT`, `syslog+tcp://...`, `syslog+unix:PATH`.

A sink's `write` returns once the events are stored: after fsync for a file, after the acknowledgement of all replicas
(acks=all) for a topic. Syslog acknowledges nothing, so `write` returns once the operating system has the message.
Otherwise `write` raises OSError.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ottla.client.audit.events import Event
from ottla.client.audit.syslog import SyslogSink
from ottla.client.errors import ClientError
from ottla.env.logging import get_logger

log = get_logger(__name__)

TOPIC = "__ottla_audit"
"""The broker's own events are there too (`ottla.audit.enable`)."""
FORMS = "topic[:NAME], file:PATH, syslog+udp://HOST:PORT, syslog+tcp://HOST:PORT or syslog+unix:PATH"
_WRITE_S = 30.0
_BATCH_BYTES = 16 * 1024
"""A topic refuses a batch that is too large as a whole: small ones, so that only an event that is too large is lost."""


class AuditDestinationError(ClientError):
    """A destination that cannot be used; one line."""


class AuditSink(Protocol):
    name: str

    def write(self, events: Sequence[Event]) -> None: ...

    def close(self) -> None: ...


class FileSink:
    """One JSON line per event, in a file for its owner only. A file that logrotate moved away is created again."""

    def __init__(self, path: str) -> None:
        self.name = f"file:{path}"
        self._path = path
        self._descriptor = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)

    def write(self, events: Sequence[Event]) -> None:
        self._follow()
        data = "".join(json.dumps(event) + "\n" for event in events).encode()
        start = os.fstat(self._descriptor).st_size
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):  # no half line, and no line twice when it is written again
                os.ftruncate(self._descriptor, start)
            raise

    def _follow(self) -> None:
        here = os.fstat(self._descriptor)
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(self._path)
            if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                return
        # Opens the new file first: the system may soon reuse the number of a closed descriptor for a different file.
        moved, self._descriptor = self._descriptor, self._open()
        os.close(moved)

    def close(self) -> None:
        os.close(self._descriptor)


class TopicSink:
    def __init__(self, topic: str, kafka: Mapping[str, Any]) -> None:
        from confluent_kafka import KafkaError, KafkaException, Producer

        self._failure, self._too_large = KafkaException, KafkaError.MSG_SIZE_TOO_LARGE
        self.name = f"topic:{topic}"
        self._topic = topic
        self._kafka = dict(kafka)
        own = {"client.id": "ottla-audit", "acks": "all", "message.timeout.ms": int(_WRITE_S * 1000),
               "batch.size": _BATCH_BYTES, "log_level": 2}  # fmt: skip
        self._producer = Producer({**self._kafka, **own})
        self._made = False

    def write(self, events: Sequence[Event]) -> None:
        self._make()
        failures: list[str] = []

        def note(error: Any, size: int) -> None:
            if error.code() == self._too_large:  # it never fits, and must not keep out all that come later
                log.error("audit.event_dropped", destination=self.name, bytes=size, reason=error.str())
            else:
                failures.append(error.str())

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                note(error, len(message.value() or b""))

        try:
            for event in events:
                value = json.dumps(event).encode()
                try:
                    self._producer.produce(self._topic, value, on_delivery=delivered)
                except self._failure as error:
                    note(error.args[0], len(value))
        except BufferError as error:
            raise OSError(str(error)) from error
        left = self._producer.flush(_WRITE_S + 5)
        if failures or left:
            self._producer.purge()
            self._made = False  # it may have been deleted
            raise OSError(failures[0] if failures else f"{left} events were not acknowledged")

    def _make(self) -> None:
        """One partition, as the broker makes it: the order of events is the order of the topic."""
        if self._made:
            return
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient(self._kafka)
        try:
            admin.create_topics([NewTopic(self._topic, 1, -1)], request_timeout=10)[self._topic].result(15)
        except KafkaException as error:
            expected_codes = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.TOPIC_AUTHORIZATION_FAILED,
                     KafkaError.CLUSTER_AUTHORIZATION_FAILED)  # fmt: skip
            if error.args[0].code() not in expected_codes:
                raise OSError(error.args[0].str()) from error
        except TimeoutError as error:
            raise OSError("the cluster does not answer") from error
        self._made = True

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)


def open_sink(destination: str, app_name: str, kafka: Mapping[str, Any] | None = None) -> AuditSink:
    """Raises AuditDestinationError. `kafka`: settings of librdkafka, where there is a cluster."""
    kind, _, target = destination.partition(":")
    address = target.removeprefix("//")
    if kind == "topic":
        if kafka is None:
            raise AuditDestinationError("--audit topic needs a cluster, and this server has none: use file or syslog")
        return TopicSink(target or TOPIC, kafka)
    if kind == "file" and address:
        try:
            return FileSink(address)
        except OSError as error:
            raise AuditDestinationError(f"cannot write the audit log {address}: {error.strerror or error}") from error
    if kind in ("syslog+udp", "syslog+tcp") and address.rpartition(":")[0] and address.rpartition(":")[2].isdigit():
        return SyslogSink(kind.removeprefix("syslog+"), address, app_name)
    if kind == "syslog+unix" and address:
        return SyslogSink("unix", address, app_name)
    raise AuditDestinationError(f"{destination!r} is not a destination of audit events: {FORMS}")
