"""A cluster with a broker down: every page answers soon and says what is missing; names that fit into no path."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets
from ottla.client.settings import client_settings
from tests.console.site import ServedConsole
from tests.robustness.cluster_process import ClusterProcess

ODD_GROUPS = ("with/slash/../and?more#%20", "<b>&\"'</b>", "שלום \u202emarhaba", "g" * 249, "reset", "a/reset")


@pytest.mark.timeout(180)
def test_a_broker_is_down(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        made = admin.create_topics([NewTopic("spread", 3, replica_assignment=[[1], [2], [3]]), NewTopic("safe", 1, 3)])
        for future in made.values():
            future.result(30)
        producer = Producer({"bootstrap.servers": servers})
        for n in range(30):
            producer.produce("spread", f"message {n}", partition=n % 3)
            producer.produce("safe", b"x")
        assert producer.flush(30) == 0
        with ServedConsole(bootstrap_servers=servers, client={}) as console:
            assert "all well" in console.get("/").text
            down = console.site.sampler.snapshot.brokers[0].id  # the one that a page would ask first
            cluster.kill(down)
            deadline = time.monotonic() + 60
            while "no leader" not in console.get("/").text.lower():
                assert time.monotonic() < deadline, console.get("/").text
                time.sleep(0.2)
            for path in ("/topics", "/groups", "/brokers", "/topics/spread", "/topics/safe/messages", "/settings",
                         "/transactions", "/lineage", "/quotas"):  # fmt: skip
                assert console.get(path).status_code == 200, path
            page = console.get("/topics/spread/messages")
            assert page.status_code == 200
            assert f"No broker leads partition {down - 1} now" in page.text
            assert [n for n in range(30) if f"message {n}<" in page.text] == [n for n in range(30) if n % 3 != down - 1]
            alone = console.get(f"/topics/spread/messages?partition={down - 1}")
            assert alone.status_code == 503
            assert f"No broker leads partition {down - 1} of spread now" in alone.text


def test_groups_of_any_name_have_their_page(console: ServedConsole, new_name) -> None:
    topic = new_name("odd")
    assert console.post("/topics", name=topic, partitions="1", replication_factor="1").status_code == 200
    with Cluster(client_settings(console.site.settings.bootstrap_servers, {})) as cluster:
        for group in ODD_GROUPS:
            commit_offsets(cluster, group, {(topic, 0): 0})
    for group in ODD_GROUPS:
        path = f"/groups/{quote(group, safe='')}"
        console.until("/groups", path)
        assert "Reset offsets" in console.get(path).text, group
        assert console.post(f"{path}/delete", confirm=group).status_code == 200
    assert "with/slash" not in console.get("/groups").text
