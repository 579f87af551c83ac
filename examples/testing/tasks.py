"""A worker like Celery's on a topic: functions become tasks, failures are retried, and a task that always fails is set aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

ATTEMPTS = 3


class Tasks:
    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self.topic, self.failed_topic = topic, f"{topic}.failed"
        self.group = f"workers-{topic}"
        self._functions: dict[str, Callable[..., object]] = {}
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def task(self, function: Callable[..., object]) -> Callable[..., None]:
        """A decorator: a call of the function sends the task to the workers."""
        self._functions[function.__name__] = function
        return lambda **arguments: self._send(self.topic, {"task": function.__name__, "arguments": arguments})

    def _send(self, topic: str, task: dict[str, Any]) -> None:
        self._producer.produce(topic, json.dumps(task))
        self._producer.flush()

    def work(self, until: Callable[[], bool]) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": self.group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([self.topic])
        try:
            while not until():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    self._run(json.loads(message.value()))
        finally:
            consumer.close()

    def _run(self, task: dict[str, Any]) -> None:
        try:
            self._functions[task["task"]](**task["arguments"])
        except Exception as failure:  # noqa: BLE001 - whatever a task raises, the worker goes on
            attempt = task.get("attempt", 1)
            failed = {**task, "attempt": attempt + 1, "error": repr(failure)}
            self._send(self.topic if attempt < ATTEMPTS else self.failed_topic, failed)
