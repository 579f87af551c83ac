"""10,000 subjects with 10 versions each: how long a start takes, how quick look-ups are, how much memory it needs."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer

from ottla.registry.records import SchemaValue, schema_record
from ottla.registry.settings import RegistrySettings
from ottla.registry.topic import ensure_topic
from ottla.testing import Broker
from tests.registry.instances import RegistryProcess

SUBJECTS, VERSIONS = 10_000, 10


def fill(bootstrap_servers: str, subjects: int, versions: int) -> None:
    """As Confluent would have written it: without our header."""
    ensure_topic(RegistrySettings(bootstrap_servers=bootstrap_servers))
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 200_000}
    )
    schema_id = 0
    for subject in range(subjects):
        fields: list[dict[str, object]] = []
        for version in range(1, versions + 1):
            schema_id += 1
            fields.append({"name": f"field_{version}", "type": ["null", "string"], "default": None})
            schema = {"type": "record", "name": f"Event{subject}", "namespace": "com.example", "fields": fields}
            text = json.dumps(schema, separators=(",", ":"))
            key, value = schema_record(
                SchemaValue(f"topic-{subject}-value", version, schema_id, deleted=False, schema=text)
            )
            producer.produce("_schemas", key=key, value=value)
            producer.poll(0)
    assert producer.flush(120) == 0


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def cpu_s(pid: int) -> float:
    """Processor seconds so far: what a start costs, however busy the machine is."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def look_ups(url: str, subjects: int, count: int) -> list[float]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    chance, taken = random.Random(1), []
    for index in range(count):
        path = (
            f"/schemas/ids/{chance.randrange(1, subjects * VERSIONS)}"
            if index % 2
            else f"/subjects/topic-{chance.randrange(subjects)}-value/versions/latest"
        )
        started = time.perf_counter()
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        taken.append(time.perf_counter() - started)
        assert response.status == 200, body
    connection.close()
    return sorted(taken)


def measured(tmp_path: Path, subjects: int, count: int) -> tuple[float, float, float, float]:
    """Seconds to start, p50 and p99 of look-ups in ms, MB."""
    with Broker(directory=tmp_path) as broker:
        fill(broker.bootstrap_servers, subjects, VERSIONS)
        registry = RegistryProcess(broker.bootstrap_servers, 0, "--alone")
        started = time.monotonic()
        registry.start()
        try:
            start_s = time.monotonic() - started
            assert registry.process is not None
            print(f"started with {cpu_s(registry.process.pid):.2f} s of processor time")
            look_ups(registry.url, subjects, 200)
            taken = look_ups(registry.url, subjects, count)
            memory = resident_mb(registry.process.pid)
        finally:
            registry.kill()
    return start_s, taken[len(taken) // 2] * 1000, taken[int(len(taken) * 0.99)] * 1000, memory


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="memory and CPU of the registry are read from /proc")
@pytest.mark.timeout(180)
def test_a_hundred_subjects_are_all_there(tmp_path: Path) -> None:
    measured(tmp_path, 100, 100)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_ten_thousand_subjects(tmp_path: Path) -> None:
    start_s, p50, p99, memory = measured(tmp_path, SUBJECTS, 5000)
    print(f"start {start_s:.2f} s, look-up p50 {p50:.2f} ms, p99 {p99:.2f} ms, {memory:.0f} MB")
    assert start_s <= 5
    assert p99 <= 5
