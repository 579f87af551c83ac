"""A small company on one cluster: topics with data, groups ahead and behind, schemas, transactions, rules, quotas, pipelines.

Browser tests and the pictures of docs/console.md (`python -m tools.screenshots`) look at the same scene.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import fastavro
import httpx
import uvicorn
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.pipelines import supervisor
from ottla.pipelines.serve import app as pipelines_app

VIEWS, ORDERS, PAYMENTS, LINES, PROFILES, EMPTY = (
    "tracking.web.page-views.json", "shop.orders.avro", "shop.payments.json", "logging.app.lines",
    "user.profiles.json", "queuing.mail.outbox",
)  # fmt: skip
TOPICS = {VIEWS: 6, ORDERS: 3, PAYMENTS: 3, LINES: 1, PROFILES: 2, EMPTY: 1}
CAUGHT_UP, BEHIND, LIVE = "dashboards", "billing", "fraud-check"
OPEN_TRANSACTION = "orders-writer-1"
_NOT_YET = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)
ORDER_1: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}, {"name": "cents", "type": "long"}],
}  # fmt: skip
ORDER_2 = {**ORDER_1, "fields": [*ORDER_1["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}
PIPELINE = """
from ottla.pipelines import Pipeline, topic, delta
p = Pipeline("revenue")
payments, by_minute = topic("shop.payments.json", value="text"), topic("shop.revenue", value="text")

@p.step(reads={"rows": payments}, writes=by_minute)
def sum_by_minute(rows):
    return rows

@p.step(reads={"rows": by_minute}, writes=delta("tables/revenue"))
def keep(rows):
    return rows
"""


class Scene:
    """Fills a cluster, and keeps a consumer and a transaction alive until it is closed."""

    def __init__(self, bootstrap_servers: str, registry_url: str = "") -> None:
        self.bootstrap_servers = bootstrap_servers
        self.registry_url = registry_url
        self._client: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
        self._stop = threading.Event()
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._transaction: Producer | None = None

    def fill(self) -> None:
        """A node that was filled before (tests may leave a package and come back) has its records."""
        admin = AdminClient(self._client)
        if not TOPICS.keys() <= admin.list_topics(timeout=30).topics.keys():
            made = admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()])
            for future in made.values():
                future.result(30)
            self._write()
            for group, count in ((CAUGHT_UP, 300), (BEHIND, 40)):
                self._commit(group, PAYMENTS, count)
        self._reader.start()
        self._transact()

    def close(self) -> None:
        self._stop.set()
        if self._reader.is_alive():
            self._reader.join(20)
        if self._transaction is not None:
            with contextlib.suppress(Exception):
                self._transaction.abort_transaction(10)

    def _write(self) -> None:
        producer = Producer({**self._client, "client.id": "web-shop", "linger.ms": 5})
        for n in range(600):
            user = f"u{n % 40}"
            view = {"user": user, "page": f"/item/{n % 25}", "ms": 20 + n * 7 % 400}
            producer.produce(VIEWS, key=user, value=json.dumps(view), headers={"trace": f"t-{n:05x}"})
        for n in range(300):
            payment = {"order": n, "cents": 500 + n * 37 % 9000, "method": ("card", "transfer", "invoice")[n % 3]}
            producer.produce(PAYMENTS, key=str(n), value=json.dumps(payment))
        for n in range(80):
            producer.produce(LINES, value=f"2026-11-16 10:{n % 60:02} INFO checkout took {n * 13 % 90} ms")
        for n in range(30):
            profile = {"name": f"Customer {n}", "since": 2010 + n % 15}
            producer.produce(PROFILES, key=f"u{n}", value=json.dumps(profile) if n != 7 else None)
        for schema in (ORDER_1, ORDER_2) if self.registry_url else ():
            head = struct.pack(">bI", 0, self.register(f"{ORDERS}-value", schema))
            for n in range(20):
                producer.produce(ORDERS, key=str(n), value=head + _avro(schema, n))
        if producer.flush(60):
            raise AssertionError("the scene was not written")

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        answer = httpx.post(
            f"{self.registry_url}/subjects/{subject}/versions", json={"schema": json.dumps(schema)}, timeout=30
        )
        answer.raise_for_status()
        return int(answer.json()["id"])

    def _commit(self, group: str, topic: str, count: int) -> None:
        reader = Consumer({**self._client, "group.id": group, "enable.auto.commit": False})
        try:
            left = []
            for partition in range(TOPICS[topic]):
                _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
                left.append(TopicPartition(topic, partition, min(end, count)))
                count -= min(end, count)
            deadline = time.monotonic() + 40
            while True:
                try:
                    reader.commit(offsets=left, asynchronous=False)
                except KafkaException as error:  # a coordinator that is just moving in
                    if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
                else:
                    return
        finally:
            reader.close()

    def _follow(self) -> None:
        settings = {"group.id": LIVE, "client.id": "fraud-check-1", "auto.offset.reset": "earliest"}
        reader = Consumer({**self._client, **settings, "auto.commit.interval.ms": 500})
        reader.subscribe([PAYMENTS, VIEWS])
        while not self._stop.is_set():
            reader.consume(500, 0.2)
        reader.close()

    def _transact(self) -> None:
        done = Producer({**self._client, "transactional.id": "orders-writer-0"})
        done.init_transactions(60)
        done.begin_transaction()
        done.produce(PROFILES, key="u1", value='{"name": "Customer 1", "since": 2024}')
        done.commit_transaction(60)
        self._transaction = Producer(
            {**self._client, "transactional.id": OPEN_TRANSACTION, "transaction.timeout.ms": 600_000}
        )
        self._transaction.init_transactions(60)
        self._transaction.begin_transaction()
        self._transaction.produce(PROFILES, key="u2", value="{}")
        self._transaction.flush(30)


def _avro(schema: dict[str, Any], n: int) -> bytes:
    data = io.BytesIO()
    order = {"id": n, "customer": f"u{n}", "cents": 100 * n, "currency": "EUR"}
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), order)
    return data.getvalue()


class Pipelines:
    """`ottla pipeline serve` over a state directory of our own: one pipeline that runs and one that has failed."""

    def __init__(self, folder: Path) -> None:
        self.state = supervisor.state_directory(str(folder / "pipelines"))
        file = folder / "revenue.py"
        file.write_text(PIPELINE)
        self.tell("revenue", "running", words=[str(file)], inputs=["topic:shop.payments.json"],
                  outputs=["delta:tables/revenue", "topic:shop.revenue"], rows=81_200, rows_per_second=412.5, lag=17,
                  queries=[{"name": "sum_by_minute", "active": True, "rows": 81_200, "rows_per_second": 412.5, "lag": 17,
                            "batch": 42, "batch_ms": 180, "restarts": 0, "error": "",
                            "expectations": [{"name": "total >= 0", "condition": "total >= 0", "on_fail": "quarantine",
                                              "passed": 81_190, "failed": 10}]}])  # fmt: skip
        self.tell("mail", "failed", words=[str(folder / "gone.py")], inputs=["topic:queuing.mail.outbox"],
                  outputs=["sql:mail"], error="the database refused the password")  # fmt: skip
        config = uvicorn.Config(
            pipelines_app(self.state), host="127.0.0.1", port=0, log_level="warning", access_log=False,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def tell(self, name: str, state: str, *, words: list[str], pid: int = 1, **more: Any) -> None:
        """Process 1 is always there, so that a pipeline said to be running is."""
        definition, status, _ = supervisor.paths(self.state, name)
        supervisor.write_json(definition, {"name": name, "words": words, "pid": pid})
        supervisor.write_json(status, {"name": name, "state": state, **more})

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self._server.started)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)


def wait_until(true: Callable[[], object], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError("it never came true")
        time.sleep(0.05)
