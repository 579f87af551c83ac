"""Flink, Storm and Samza with their own Kafka connectors: each reads a topic of Ottla and writes another one.

Spark has tests of its own (tests/pipelines), and so has Kafka Streams (tests/coordinator/test_streams_application.py).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing import Broker
from tests.support.committed import committed_lines
from tests.support.kafka_jars import Unavailable, cache_dir, fetch_artifacts, java

SOURCES = Path(__file__).parent / "frameworks"
ARTIFACTS = {
    "Flink": [
        "org.apache.flink:flink-streaming-java:2.0.0",
        "org.apache.flink:flink-clients:2.0.0",
        "org.apache.flink:flink-connector-base:2.0.0",
        "org.apache.flink:flink-connector-kafka:4.0.0-2.0",
    ],
    "Storm": [
        "org.apache.storm:storm-server:2.8.0",
        "org.apache.storm:storm-kafka-client:2.8.0",
        "org.apache.kafka:kafka-clients:3.9.0",
    ],
    "Samza": [
        "org.apache.samza:samza-api:1.8.0",
        "org.apache.samza:samza-core_2.12:1.8.0",
        "org.apache.samza:samza-kafka_2.12:1.8.0",
    ],
}
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
JVM += ["--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
LINES = [f"line {number}" for number in range(200)]


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", list(ARTIFACTS))
def test_reads_a_topic_and_writes_another(framework: str, tmp_path: Path) -> None:
    try:
        jars = fetch_artifacts(framework, cache_dir().with_name(f"ottla-{framework.lower()}"), ARTIFACTS[framework])
    except Unavailable as reason:
        pytest.skip(str(reason))
    classpath = f"{jars}/*:{tmp_path}"
    source = SOURCES / f"{framework}Job.java"
    subprocess.run(["javac", "-cp", classpath, "-d", str(tmp_path), str(source)], check=True, timeout=120)
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        made = admin.create_topics([NewTopic("in", 3), NewTopic("out", 3)])
        for future in made.values():
            future.result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for line in LINES:
            producer.produce("in", line)
        assert producer.flush(30) == 0
        command = [java(), *JVM, "-cp", classpath, f"{framework}Job", broker.bootstrap_servers, "in", "out"]
        with (tmp_path / "log").open("wb") as log:
            job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path)
        try:
            found = committed_lines(broker.bootstrap_servers, "out", len(LINES), 120)
            assert sorted(found) == sorted(line.upper() for line in LINES), (tmp_path / "log").read_text()[-3000:]
        finally:
            job.kill()
            job.wait(30)
