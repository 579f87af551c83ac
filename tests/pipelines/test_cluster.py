"""The same pipeline file on local[*] and on a real standalone Spark cluster, against both servers: equal results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.tables.query import topic_table
from tests.interop.ottla_server import OttlaServer
from tests.pipelines.conftest import PROPERTIES, Topics
from tests.pipelines.rounds import Driver, Outputs, check, send
from tests.support.apache_kafka import ApacheKafka
from tests.support.spark_servers import standalone_cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
ROWS = 600
EXECUTOR = ("spark.executor.memory=512m", "spark.executor.cores=1", "spark.executor.extraJavaOptions=-XX:+UseSerialGC")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A master and two workers of one core each: their address and the folder of the workers."""
    folder = tmp_path_factory.mktemp("spark-cluster")
    with standalone_cluster(folder) as master:
        yield master, folder


@pytest.mark.parametrize("kind", [OttlaServer, pytest.param(ApacheKafka, marks=pytest.mark.interop)])
def test_master_and_two_workers(cluster, kind, tmp_path, request):
    if kind is ApacheKafka:
        request.getfixturevalue("requires_apache_kafka")
    master, workers = cluster
    ran_before = len(list(workers.glob("worker*/app-*")))
    server = kind(tmp_path / "server", properties=PROPERTIES)
    server.start()
    try:
        Topics(server).make("in", 4)
        send(server, range(ROWS), random.Random(7))
        found = {}
        for name, where, conf in (("local", "local[*]", ()), ("cluster", master, EXECUTOR)):
            folder = tmp_path / name
            outputs = Outputs.local(folder / "out", f"-{name}")
            Driver(server.bootstrap_servers, folder, outputs, where, *conf).finish(400)
            check(server, outputs, ROWS)
            found[name] = _counts(server, outputs)
        assert found["local"] == found["cluster"]
        assert len(list(workers.glob("worker*/app-*"))) - ran_before == 2, "both workers took part"
    finally:
        server.kill()


def _counts(server: ApacheKafka, outputs: Outputs) -> dict[bytes, bytes]:
    rows = topic_table({"bootstrap.servers": server.bootstrap_servers}, f"counts{outputs.suffix}").to_pylist()
    return {row["key"]: row["value"] for row in rows}
