"""Spans of requests at a collector that the test makes: what is in them, sampling, a collector that is gone, none at all."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, Producer

from ottla.broker.metrics import BrokerMetrics
from ottla.broker.tracing import MAX_WAITING, TracingMetrics
from ottla.env.config.load import load
from ottla.env.config.problems import ConfigError
from ottla.testing import Broker
from tests.support.ports import free_port


class Collector(http.server.BaseHTTPRequestHandler):
    received: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json":
            self.received.append(json.loads(body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def collector() -> Iterator[str]:
    Collector.received.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    server.shutdown()
    server.server_close()


def spans() -> list[dict[str, Any]]:
    return [
        {**span, "facts": {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}}
        for request in list(Collector.received)
        for resource in request["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def write_and_read(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "client.id": "writer", "linger.ms": 50})
    for n in range(10):
        producer.produce("traced", b"%d" % n)
    assert producer.flush(30) == 0
    reader = Consumer({
        "bootstrap.servers": bootstrap_servers, "client.id": "reader", "group.id": "g", "auto.offset.reset": "earliest",
    })  # fmt: skip
    reader.subscribe(["traced"])
    seen, deadline = 0, time.monotonic() + 40
    while seen < 10 and time.monotonic() < deadline:
        seen += sum(message.error() is None for message in reader.consume(10, 0.5))
    reader.close()
    assert seen == 10


def test_requests_arrive_as_spans() -> None:
    with collector() as endpoint:
        before = time.time()
        with Broker(properties={"ottla.traces.endpoint": endpoint}) as broker:
            assert broker.node.broker is not None
            write_and_read(broker.bootstrap_servers)
        # Stopping sends what is left.
        found = spans()
        resource = {
            each["key"]: each["value"]["stringValue"]
            for each in Collector.received[0]["resourceSpans"][0]["resource"]["attributes"]
        }
    assert resource["service.name"] == "ottla"
    assert resource["service.instance.id"] == "1"
    by_name: dict[str, list[dict[str, Any]]] = {}
    for span in found:
        by_name.setdefault(span["name"], []).append(span)
    assert {"Produce", "Fetch", "Metadata", "JoinGroup", "ApiVersions"} <= set(by_name)
    wrote = [
        span["facts"] for span in by_name["Produce"] if span["facts"].get("messaging.destination.name") == "traced"
    ]
    assert sum(int(facts["messaging.batch.message_count"]) for facts in wrote) == 10
    assert {facts["messaging.client.id"] for facts in wrote} == {"writer"}
    assert any(span["facts"].get("messaging.destination.name") == "traced" for span in by_name["Fetch"])
    assert len({span["spanId"] for span in found}) == len(found)
    for span in found:
        assert len(span["traceId"]) == 32
        begin, end = int(span["startTimeUnixNano"]) / 1e9, int(span["endTimeUnixNano"]) / 1e9
        assert before - 1 <= begin <= end <= time.time() + 1


def test_a_part_of_the_requests() -> None:
    class Context:
        api_key, version, client_id, principal, client_host, started_ms = 3, 13, "c", "User:ANONYMOUS", "127.0.0.1", 0.0

    class Still:
        def time_ms(self) -> int:
            return 1000

        def monotonic_ms(self) -> float:
            return 5.0

    metrics = TracingMetrics(Still(), 0.25)
    for _ in range(100):
        metrics.answered(Context())  # type: ignore[arg-type]  # only what is read of it
    assert len(metrics.take(1000)) == 25
    whole = TracingMetrics(Still(), 1.0)
    for _ in range(MAX_WAITING + 7):
        whole.answered(Context())  # type: ignore[arg-type]  # as above
    assert whole.spans_dropped == 7, "a queue that nobody empties does not grow"
    assert len(whole.take(10)) == 10


def test_a_collector_that_is_gone_costs_nobody_anything() -> None:
    endpoint = f"http://127.0.0.1:{free_port()}/v1/traces"
    with Broker(properties={"ottla.traces.endpoint": endpoint}) as broker:
        write_and_read(broker.bootstrap_servers)
        server = broker.node.broker
        assert server is not None
        metrics = server.metrics
        assert isinstance(metrics, TracingMetrics)
        deadline = time.monotonic() + 30
        while not metrics.spans_dropped and time.monotonic() < deadline:
            time.sleep(0.05)
        assert metrics.spans_dropped > 0


def test_off_means_that_nothing_is_there() -> None:
    with Broker() as broker:
        server = broker.node.broker
        assert server is not None
        assert server.metrics is None
    with Broker(properties={"ottla.http.listener": f"127.0.0.1:{free_port()}"}) as broker:
        server = broker.node.broker
        assert server is not None
        assert type(server.metrics) is BrokerMetrics


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ottla.traces.endpoint", "collector:4318", "must begin with http"),
        ("ottla.traces.sample.ratio", "2", "no more than 1"),
    ],
)
def test_bad_settings_are_refused(name: str, value: str, says: str) -> None:
    given = {
        "process.roles": "broker,controller", "node.id": "1", "log.dirs": "x", name: value,
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    }  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        load(given)
    assert says in str(refused.value.problems)
