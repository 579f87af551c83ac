"""A node's HTTP listener: metrics that Prometheus and Kafka's dashboards understand, health, lineage, bad input."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.runtime.clock import SystemClock
from ottla.server.monitoring.exposition import METRICS, expose
from ottla.server.monitoring.group_lag import Lag
from ottla.testing import Broker
from tests.robustness.wire import call
from tests.support.apache_kafka import TEST_JVM, ApacheKafka
from tests.support.debian import debian_command
from tests.support.frames import RawConnection
from tests.support.jmx_exporter import RULES, agent
from tests.support.kafka_jars import Unavailable
from tests.support.ports import free_port


def get(address: str, path: str) -> str:
    with urlopen(f"http://{address}{path}", timeout=20) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[Broker, str]]:
    address = f"127.0.0.1:{free_port()}"
    with Broker(properties={"ottla.http.listener": address, "ottla.loop.stall.ms": "250"}) as broker:
        load(broker.bootstrap_servers)
        with sharing(broker.bootstrap_servers):
            yield broker, address


def load(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "client.id": "writer"})
    for n in range(100):
        producer.produce("counted", b"%d" % n)
    assert producer.flush(30) == 0
    reader = Consumer({
        "bootstrap.servers": bootstrap_servers, "client.id": "reader", "group.id": "g", "auto.offset.reset": "earliest",
    })  # fmt: skip
    reader.subscribe(["counted"])
    seen, deadline = 0, time.monotonic() + 40
    while seen < 100 and time.monotonic() < deadline:
        seen += sum(message.error() is None for message in reader.consume(100, 0.5))
    reader.commit(asynchronous=False)
    reader.close()
    assert seen == 100


@contextmanager
def sharing(bootstrap_servers: str) -> Iterator[None]:
    """A member of a share group that has accepted records, and stays."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce("shared", b"before the group")
    assert producer.flush(30) == 0
    member = ShareConsumer({"bootstrap.servers": bootstrap_servers, "group.id": "queue"})
    member.subscribe(["shared"])
    try:
        seen, deadline = 0, time.monotonic() + 60
        while seen < 2:  # the second poll acknowledges what the first has got
            assert time.monotonic() < deadline, "the share group got nothing"
            producer.produce("shared", b"work")
            producer.flush(30)
            seen += bool([message for message in member.poll(0.5) if message.error() is None])
        yield
    finally:
        member.close()


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counts_are_true(node: tuple[Broker, str]) -> None:
    found = samples(get(node[1], "/metrics"))
    topic = (("topic", "counted"),)
    assert found["kafka_server_brokertopicmetrics_messagesin_total", topic] == 100
    assert found["kafka_server_brokertopicmetrics_messagesin_total", ()] >= 100
    assert found["kafka_server_brokertopicmetrics_bytesout_total", topic] > 100
    assert found["kafka_log_log_logendoffset", (("partition", "0"), ("topic", "counted"))] == 100
    assert found["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
    assert found["kafka_server_replicamanager_underreplicatedpartitions", ()] == 0
    requests = {
        dict(labels)["request"] for name, labels in found if name == "kafka_network_requestmetrics_requests_total"
    }
    assert {"Produce", "Fetch", "Metadata"} <= requests
    assert found["process_resident_memory_bytes", ()] > 1_000_000
    rebalances = "kafka_server_group_coordinator_metrics_"
    assert found[f"{rebalances}group_completed_rebalance_count", ()] >= 1
    assert found[f"{rebalances}share_group_rebalance_count", ()] >= 1
    assert found[f"{rebalances}streams_group_rebalance_count", ()] == 0


def test_a_new_epoch_of_a_consumer_group_is_a_rebalance(node: tuple[Broker, str]) -> None:
    name = "kafka_server_group_coordinator_metrics_consumer_group_rebalance_count", ()
    host, port = node[0].bootstrap_servers.split(":")
    before = samples(get(node[1], "/metrics"))[name]
    with RawConnection(host, int(port), timeout=20) as connection:
        request = ConsumerGroupHeartbeatRequest(
            group_id="modern", member_id="AAECAwQFBgcICQoLDA0ODw", member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=["counted"], topic_partitions=[],
        )  # fmt: skip
        joined = call(connection, request)
        assert joined.error_code == 0, joined.error_message
        assert samples(get(node[1], "/metrics"))[name] == before + 1
        again = ConsumerGroupHeartbeatRequest(
            group_id="modern", member_id=request.member_id, member_epoch=joined.member_epoch
        )
        assert call(connection, again).error_code == 0
    assert samples(get(node[1], "/metrics"))[name] == before + 1, "nothing has changed"


def test_partitions_that_compaction_gave_up_on_are_counted(node: tuple[Broker, str]) -> None:
    name = "kafka_log_logcleanermanager_uncleanable_partitions_count"
    broker = node[0].node.broker
    assert broker is not None
    log = next(partition.log for partition in broker.replicas if partition.topic_partition.topic == "counted")
    labels = (("logdirectory", log.log_dir.path),)
    assert samples(get(node[1], "/metrics"))[name, labels] == 0
    log.uncleanable = True
    try:
        assert samples(get(node[1], "/metrics"))[name, labels] == 1
    finally:
        log.uncleanable = False


def test_every_metric_is_in_the_table_and_used(node: tuple[Broker, str]) -> None:
    told = {name for name, _ in samples(get(node[1], "/metrics"))}
    histograms = {metric.name for metric in METRICS if metric.kind == "histogram"}
    told = {name.rpartition("_")[0] if name.rpartition("_")[0] in histograms else name for name in told}
    known = {metric.name for metric in METRICS}
    assert known - told == {
        "ottla_client_metric",  # when a client has pushed
        "ottla_group_uncommitted_records",  # with a member that owns and does not commit: test_group_lag.py
        "ottla_master_keys_failures",  # with a source of master keys; tests/security/test_key_servers.py sees both
        "ottla_master_keys_age_seconds",
    }
    assert told <= known


@pytest.mark.interop
def test_promtool_is_content(node: tuple[Broker, str]) -> None:
    try:
        promtool = debian_command("promtool", "prometheus", 200)
    except Unavailable as reason:
        pytest.skip(str(reason))
    text = get(node[1], "/metrics")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=40, check=False
    )
    # Names that the exporter gives (`_count` on a gauge) are not to promtool's taste; nothing may be wrong.
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line.lower()]
    assert complaints == []
    assert done.returncode in (0, 3), done.stderr


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_names_are_those_of_kafkas_own_exporter(requires_apache_kafka: None, tmp_path) -> None:
    try:
        jar = agent()
    except Unavailable as reason:
        pytest.skip(str(reason))
    rules, port = tmp_path / "rules.yml", free_port()
    rules.write_text(RULES)
    options = (*TEST_JVM, f"-javaagent:{jar}=127.0.0.1:{port}:{rules}")
    with ApacheKafka(tmp_path / "kafka", jvm_options=options) as kafka, ExitStack() as stack:
        load(kafka.bootstrap_servers)
        stack.enter_context(sharing(kafka.bootstrap_servers))
        ours = {metric.name for metric in METRICS if metric.bean}
        assert len(ours) > 40
        deadline = time.monotonic() + 30
        while missing := ours - {name for name, _ in samples(get(f"127.0.0.1:{port}", "/metrics"))}:
            assert time.monotonic() < deadline, missing
            time.sleep(0.2)  # some are there from what they count on, a moment after the client's answer


def test_health_and_readiness(node: tuple[Broker, str]) -> None:
    assert get(node[1], "/healthz") == "ok\n"
    assert get(node[1], "/readyz") == "ready\n"


def test_lineage_names_who_wrote_and_who_read(node: tuple[Broker, str]) -> None:
    told = json.loads(get(node[1], "/lineage"))
    wrote = {(row["client_id"], row["topic"]) for row in told["produce"]}
    read = {(row["client_id"], row["topic"]) for row in told["fetch"]}
    assert ("writer", "counted") in wrote
    assert ("reader", "counted") in read


def test_long_names_of_peers_are_cut_and_the_text_is_made_in_slices(node: tuple[Broker, str]) -> None:
    broker, address = node
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "c" * 30_000})
    producer.produce("counted-long", b"x")
    assert producer.flush(30) == 0
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g" * 30_000})
    reader.commit(offsets=[TopicPartition("counted-long", 0, 0)], asynchronous=False)
    reader.close()
    (row,) = (row for row in json.loads(get(address, "/lineage"))["produce"] if row["topic"] == "counted-long")
    assert row["client_id"].startswith("ccc")
    assert len(row["client_id"]) < 300
    deadline = time.monotonic() + 40
    while 'topic="counted-long"' not in (text := _lags(get(address, "/metrics"))):
        assert time.monotonic() < deadline
    assert "ggg" in text
    assert max(map(len, text.splitlines())) < 600

    async def slices() -> int:
        """Turns of the loop that others have while the text is made."""
        turns, done = 0, asyncio.Event()

        async def others() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.ensure_future(others())
        lags = [Lag("g", "t", number, 1, 0) for number in range(50_000)]
        server: Any = SimpleNamespace(metrics=None, master_keys=None, clock=SystemClock(), node_id=1, cluster_id="x",
                                      image=None, metadata_offset=0)  # fmt: skip
        await expose(server, [], active_controller=False, resident_bytes=None, lags=lags)
        done.set()
        await other
        return turns

    assert asyncio.run(slices()) > 50_000 // 256


def _lags(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("ottla_group_lag"))


def test_a_deleted_topic_is_counted_no_more(node: tuple[Broker, str]) -> None:
    broker, address = node
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("short-lived", b"x")
    assert producer.flush(30) == 0
    assert 'topic="short-lived"' in get(address, "/metrics")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["short-lived"])["short-lived"].result(30)
    assert "short-lived" not in get(address, "/metrics")
    assert "short-lived" not in get(address, "/lineage")


def test_what_is_not_there_is_404(node: tuple[Broker, str]) -> None:
    with pytest.raises(HTTPError, match="404"):
        get(node[1], "/../etc/passwd")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x00" * 100 + b"\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_garbage_hurts_nobody(node: tuple[Broker, str], sent: bytes) -> None:
    host, port = node[1].split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=20) as raw, suppress(ConnectionError):
        raw.sendall(sent)  # the server may have closed before the last of it came
        raw.shutdown(socket.SHUT_WR)
        answer = raw.recv(1000)
    assert b"200 OK" not in answer
    assert get(node[1], "/healthz") == "ok\n"


def test_the_docs_page_is_the_table() -> None:
    from tools.metrics_docs import PAGE, page

    assert PAGE.read_text("utf-8") == page(), "run make docs"
