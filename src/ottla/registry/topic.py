"""The `_schemas` topic over the wire: made when it is missing, read by one thread, written by another.

State lives on the event loop: the reading thread only hands batches over (`on_messages`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, only not in __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.client.librdkafka_errors import LocalError
from ottla.client.watermarks import watermarks
from ottla.env.logging import get_logger
from ottla.registry.background_thread import BackgroundThread
from ottla.registry.log import SEEN, Message
from ottla.registry.records import Record
from ottla.registry.settings import RegistrySettings, RegistryStartError

log = get_logger(__name__)
_BATCH = 5000


def client_config(settings: RegistrySettings, name: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": name,
        "log_level": 2,
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 1000,
        **settings.client_properties,
    }


def ensure_topic(settings: RegistrySettings) -> None:
    """One partition, compacted, as many replicas as asked for and possible. RegistryStartError when it is not so."""
    admin = AdminClient(client_config(settings, "ottla-registry"))
    try:
        metadata = admin.list_topics(timeout=settings.start_timeout_s)
        if settings.topic not in metadata.topics:
            replicas = min(settings.replication_factor, len(metadata.brokers))
            topic = NewTopic(settings.topic, 1, replicas, config={"cleanup.policy": "compact"})
            _create(admin, topic, settings.start_timeout_s)
        else:
            _check_topic(admin, settings, len(metadata.topics[settings.topic].partitions))
    except KafkaException as error:
        raise RegistryStartError(f"no answer from {settings.bootstrap_servers}: {error.args[0].str()}") from error


def _create(admin: AdminClient, topic: NewTopic, timeout_s: float) -> None:
    try:
        admin.create_topics([topic], request_timeout=timeout_s)[topic.topic].result(timeout_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _check_topic(admin: AdminClient, settings: RegistrySettings, partitions: int) -> None:
    if partitions != 1:
        raise RegistryStartError(f"the topic {settings.topic} has {partitions} partitions; it must have exactly one")
    resource = ConfigResource(ResourceType.TOPIC, settings.topic)
    described = admin.describe_configs([resource], request_timeout=settings.start_timeout_s)
    policy = described[resource].result(settings.start_timeout_s)["cleanup.policy"].value
    if policy != "compact":
        raise RegistryStartError(
            f"The retention policy of the schema topic {settings.topic} is incorrect. "
            f"Expected cleanup.policy to be 'compact' but it is {policy}"
        )


class TopicReader(BackgroundThread):
    """A thread that reads from the first record on, and reports each time it has reached the end."""

    def __init__(self, settings: RegistrySettings, on_messages: Callable[[list[Message], int | None], None]) -> None:
        super().__init__("registry-reader")
        self._settings = settings
        self._on_messages = on_messages

    def _run(self) -> None:
        consumer = Consumer(
            {
                **client_config(self._settings, "ottla-registry-reader"),
                "group.id": f"{self._settings.group_id}-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 200,
                "fetch.min.bytes": 1,
                "fetch.message.max.bytes": 8 << 20,
                "check.crcs": False,
                "fetch.error.backoff.ms": 100,
            }
        )
        try:
            consumer.assign([TopicPartition(self._settings.topic, 0, OFFSET_BEGINNING)])
            while not self._stopping.is_set():
                # One by poll, which returns at once when there is one; what else has come along by consume.
                first = consumer.poll(0.1)
                if first is not None:
                    self._hand_over([first, *consumer.consume(_BATCH, 0.0)])
        except KafkaException as error:
            log.error("topic.lost", reason=error.args[0].str())
        finally:
            consumer.close()

    def _hand_over(self, polled: list[Any]) -> None:
        messages: list[Message] = []
        end: int | None = None
        for message in polled:
            error = message.error()
            if error is None:
                messages.append((message.offset(), message.key(), message.value(), _seen(message.headers())))
            elif error.code() == LocalError.PARTITION_EOF:
                end = message.offset()
            else:
                log.warning("topic.not_read", reason=error.str())
        if messages or end is not None:
            self._on_messages(messages, end)


def _seen(headers: list[tuple[str, bytes]] | None) -> int | None:
    for name, value in headers or ():
        if name == SEEN and value and value.isdigit():
            return int(value)
    return None


class TopicWriter:
    """One record at a time; the caller's thread waits for the acknowledgement of all replicas in sync."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._producer: Any = None
        self._lock = threading.Lock()

    def append(self, record: Record, seen: int) -> int:
        """The offset of the record; KafkaException when it is not known to be written."""
        with self._lock:
            if self._producer is None:
                self._producer = Producer(
                    {
                        **client_config(self._settings, "ottla-registry-writer"),
                        "acks": "all",
                        "enable.idempotence": True,
                        "linger.ms": 0,
                        "delivery.timeout.ms": int(self._settings.timeout_s * 1000),
                        "message.max.bytes": 100_000_000,
                    }
                )
            outcome: list[tuple[Any, Any]] = []
            self._producer.produce(
                self._settings.topic, key=record[0], value=record[1], partition=0,
                headers=[(SEEN, str(seen).encode())],
                on_delivery=lambda error, message: outcome.append((error, message)),
            )  # fmt: skip
            self._producer.flush(self._settings.timeout_s + 1)
            if not outcome:
                raise KafkaException(KafkaError(LocalError.TIMED_OUT))
            error, message = outcome[0]
            if error is not None:
                raise KafkaException(error)
            return int(message.offset())

    def close(self) -> None:
        with self._lock:
            if self._producer is not None:
                self._producer.flush(1)
                self._producer = None


def end_offset(settings: RegistrySettings) -> int:
    """Where the topic ends now."""
    consumer = Consumer({**client_config(settings, "ottla-registry"), "group.id": f"{settings.group_id}-reader"})
    try:
        return watermarks(consumer, settings.topic, 0, settings.start_timeout_s)[1]
    finally:
        consumer.close()
