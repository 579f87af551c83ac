"""The case studies of the course (seed 003): taxis matched and priced, films recommended, everything in a store for analysis.

What is expected comes from the same events applied in memory; workers are killed in the middle of a transaction.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.connect.worker import run_connector
from ottla.testing import Broker

CASES = Path(__file__).parents[2] / "examples/cases"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    soon = {
        "group.min.session.timeout.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    with Broker(properties=soon) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CASES))


def worker(name: str, servers: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(CASES / name), servers], env={**os.environ, **environment})


def topic(servers: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions)])[name].result(30)


def write(servers: str, name: str, pairs: Sequence[tuple[str, Row]]) -> None:
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for key, value in pairs:
        producer.produce(name, json.dumps(value), key)
    assert producer.flush(30) == 0


def read(servers: str, name: str, enough: Callable[[list[Row]], bool]) -> list[Row]:
    """What is committed, until it is enough; then a moment more, for what should not come."""
    settings = {"bootstrap.servers": servers, "group.id": f"check-{name}", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    rows: list[Row] = []
    deadline = time.monotonic() + 60
    while not enough(rows):
        assert time.monotonic() < deadline, rows
        rows += [json.loads(message.value() or b"") for message in consumer.consume(500, 0.2)]
    rows += [json.loads(message.value() or b"") for message in consumer.consume(500, 0.5)]
    consumer.close()
    return rows


def stopped(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    assert process.wait(30) == 0


def sorted_rows(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def test_taxis(servers: str, cases: None, tmp_path: Path) -> None:
    from taxis import EVENTS, RIDES, Zone  # type: ignore[import-not-found]  # an example, found by its folder

    topic(servers, EVENTS, 3)
    topic(servers, RIDES, 3)
    chance = random.Random(7)
    events: list[tuple[str, Row]] = []
    for number in range(300):
        zone = f"zone-{number % 5}"
        place = {"x": round(chance.uniform(0, 5), 2), "y": round(chance.uniform(0, 5), 2)}
        kind = chance.choice(["request", "request", "free", "free", "gone"])
        who = {"rider": f"r{number}", "km": number % 12} if kind == "request" else {"driver": f"{zone}-d{number % 40}"}
        events.append((zone, {"kind": kind, "zone": zone, **place, **who}))
    # Zones that share a partition share its drivers: the partition is what is decided over.
    write(servers, EVENTS, events)
    wanted: list[Row] = []
    for partition in range(3):
        machine = Zone()
        for event in partition_of(servers, EVENTS, partition):
            wanted += [ride for _, ride in machine.apply(event)]
    assert len(wanted) > 50
    assert any(ride["demand"] > 1 for ride in wanted)  # dearer when more ask than are free
    # The group and the transaction give it up soon; those that live on may be slow.
    killed = worker("taxis.py", servers, DIE_AFTER="2", PATIENCE_MS="2000")
    assert killed.wait(60) == -9
    workers = [worker("taxis.py", servers) for _ in range(2)]
    try:
        rides = read(servers, RIDES, lambda rows: len(rows) >= len(wanted))
    finally:
        for one in workers:
            stopped(one)
    assert sorted_rows(rides) == sorted_rows(wanted)
    # Every ride goes into the store for analysis, and is asked there.
    config = {"name": "rides", "connector.class": "parquet-sink", "topics": RIDES, "path": str(tmp_path / "rides")}
    assert run_connector(config, {"bootstrap.servers": servers}, once=True) == len(wanted)
    query = f"select count(*), round(sum(price), 2) from '{tmp_path}/rides/**/*.parquet'"
    assert duckdb.connect().execute(query).fetchone() == (len(wanted), round(sum(ride["price"] for ride in wanted), 2))


def partition_of(servers: str, name: str, partition: int) -> list[Row]:
    from confluent_kafka import TopicPartition
    from replayed import history  # type: ignore[import-not-found]  # an example, found by its folder

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ends"})
    end = consumer.get_watermark_offsets(TopicPartition(name, partition), 30)[1]
    consumer.close()
    return list(history(servers, name, partition, end))


def test_films(servers: str, cases: None) -> None:
    from films import CATALOGUE, POSITIONS, RECOMMENDATIONS, Viewers  # type: ignore[import-not-found]  # as above

    topic(servers, POSITIONS, 32)
    topic(servers, RECOMMENDATIONS, 3)
    films = list(CATALOGUE)
    events = [
        (f"v{n % 17}", {"viewer": f"v{n % 17}", "film": films[(n * 7 + n // 17) % 9], "second": 60 * (n // 17 + 1)})
        for n in range(200)
    ]
    write(servers, POSITIONS, events)
    machine = Viewers()  # a viewer's events are in one partition, so one machine for all says the same
    wanted = [row for _, event in events for _, row in machine.apply(event)]
    assert len(wanted) > 30
    one = worker("films.py", servers)
    try:
        rows = read(servers, RECOMMENDATIONS, lambda rows: len(rows) >= len(wanted))
    finally:
        stopped(one)
    for viewer in {row["viewer"] for row in wanted}:  # in order for each viewer
        assert [row for row in rows if row["viewer"] == viewer] == [row for row in wanted if row["viewer"] == viewer]
    assert len(rows) == len(wanted)
