"""One writer among several instances: the member of the consumer group that is given the topic's only partition.

The group's coordinator on the broker is the referee, and its list of members is the address book: an instance's
client.id is its URL, signed or not (`peers.py`). Being elected is a matter of who does the work; that nothing is written twice is the log's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from ottla.env.logging import get_logger
from ottla.registry.background_thread import BackgroundThread
from ottla.registry.settings import RegistrySettings
from ottla.registry.topic import client_config

log = get_logger(__name__)


class WriterElection(BackgroundThread):
    def __init__(self, settings: RegistrySettings, client_id: str, on_change: Callable[[bool], object]) -> None:
        super().__init__("registry-election")
        self._settings = settings
        self._client_id = client_id
        self._on_change = on_change

    def _run(self) -> None:
        consumer = Consumer(
            {
                **client_config(self._settings, self._client_id),
                "group.id": self._settings.group_id,
                "enable.auto.commit": False,
                "session.timeout.ms": self._settings.session_timeout_ms,
                "heartbeat.interval.ms": max(self._settings.session_timeout_ms // 6, 100),
                "partition.assignment.strategy": "range",
            }
        )

        def assigned(member: Any, partitions: list[Any]) -> None:
            # Membership is all that is wanted: nothing is fetched through this consumer.
            member.assign([])
            self._on_change(bool(partitions))

        def revoked(member: Any, _: list[Any]) -> None:
            member.unassign()
            self._on_change(False)

        consumer.subscribe([self._settings.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        try:
            while not self._stopping.is_set():
                message = consumer.poll(0.2)
                error = message.error() if message is not None else None
                if error is not None:
                    log.debug("election.failed", reason=error.str())
        finally:
            consumer.close()


def writer_id(settings: RegistrySettings) -> str | None:
    """The client id of the elected writer as the group's coordinator knows it; None while there is none."""
    admin = AdminClient(client_config(settings, "ottla-registry"))
    try:
        described = admin.describe_consumer_groups([settings.group_id], request_timeout=settings.timeout_s)
        group = described[settings.group_id].result(settings.timeout_s)
    except KafkaException as error:
        log.debug("election.not_read", reason=str(error))
        return None
    for member in group.members:
        if member.assignment is not None and member.assignment.topic_partitions:
            return str(member.client_id)
    return None
