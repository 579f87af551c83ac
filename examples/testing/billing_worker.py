"""A worker with confluent-kafka: an order becomes an invoice, at least once, and the invoice's key removes repetitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaException, Producer


class BillingWorker:
    def __init__(self, servers: str, orders: str, invoices: str) -> None:
        self._invoices = invoices
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"billing-{orders}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([orders])

    def run(self, until: Callable[[], bool]) -> None:
        """Work until `until` returns true. Raises KafkaException if a commit fails: a new worker repeats the order."""
        try:
            while not until():
                message = self._consumer.poll(0.1)
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self._bill(json.loads(message.value()))
                self._consumer.commit(message, asynchronous=False)
        finally:
            self._consumer.close()

    def _bill(self, order: Mapping[str, int]) -> None:
        invoice = {"order": order["id"], "total": order["pieces"] * order["price"]}
        self._producer.produce(self._invoices, json.dumps(invoice), key=str(order["id"]))
        self._producer.flush()
