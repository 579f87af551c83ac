"""What the console must bear, each part a process of its own as in life. Run alone on a quiet machine:

pytest -n 0 -s -m soak tests/console/test_limits.py
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets
from ottla.client.settings import client_settings
from tests.interop.ottla_server import OTTLA, OttlaServer
from tests.support.ports import free_port

pytestmark = [pytest.mark.soak, pytest.mark.interop, pytest.mark.timeout(600)]

HAY, NEEDLES, PARTITIONS = 5_000_000, 1_000, 4
TAIL_RATE, TAIL_SECONDS = 100_000, 20
AIM = TAIL_RATE * 103 // 100
"""What the writer aims at, so that the rate it reaches is not a hair below."""
TOPICS, GROUPS, LOOKS = 1_000, 500, 200
WRITER = """
import sys, time
from confluent_kafka import Producer
servers, topic, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "acks": 1})
value, began, sent = b'{"user": 12345, "page": "/item/17", "took_ms": 40}', time.monotonic(), 0
while (now := time.monotonic() - began) < seconds:
    for _ in range(max(0, min(20_000, int(now * rate) - sent))):
        producer.produce(topic, value)
        sent += 1
    producer.poll(0)
    time.sleep(0.002)
producer.flush(60)
print(sent, time.monotonic() - began, flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    with OttlaServer(tmp_path_factory.mktemp("limits")) as running:
        yield running


@contextmanager
def console(server: OttlaServer) -> Iterator[tuple[str, int]]:
    """Address and process id of `ottla console`."""
    port = free_port()
    command = [*OTTLA, "console", "--bootstrap-servers", server.bootstrap_servers, "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "is up" in process.stdout.readline()
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def make_topics(server: OttlaServer, names: list[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    for start in range(0, len(names), 200):
        made = admin.create_topics([NewTopic(name, partitions, 1) for name in names[start : start + 200]])
        for future in made.values():
            future.result(60)


def report(line: str) -> None:
    print(f"\n[limits] {line} (load {os.getloadavg()[0]:.1f})")


def test_a_search_finds_every_needle_among_five_million(server: OttlaServer) -> None:
    make_topics(server, ["hay"], PARTITIONS)
    producer = Producer({
        "bootstrap.servers": server.bootstrap_servers, "linger.ms": 20, "batch.size": 500_000, "acks": 1,
        "queue.buffering.max.messages": 1_000_000, "compression.type": "lz4",
    })  # fmt: skip
    needles = set(range(0, HAY, HAY // NEEDLES)) | {HAY - 1}
    straw = b'{"user": 12345, "page": "/item/17", "took_ms": 40, "agent": "straw"}'
    for n in range(HAY):
        while True:
            try:
                producer.produce("hay", b"needle %d" % n if n in needles else straw, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if n % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    with console(server) as (url, pid), httpx.Client(base_url=url, timeout=60, follow_redirects=True) as http:
        csrf = csrf_of(http)
        for wanted, count in (("needle ", len(needles)), (f"needle {HAY - 1}", 1)):
            began = time.monotonic()
            place = http.post("/topics/hay/search", data={"csrf": csrf, "value": wanted, "begin": "oldest"}).url.path
            last = {}
            with http.stream("GET", f"{place}/events", timeout=400) as stream:
                for line in stream.iter_lines():
                    if line.startswith("data: ") and '"texts"' in line:
                        last = httpx.Response(200, content=line[6:].encode()).json()
                        if last["over"]:
                            break
            took = time.monotonic() - began
            rate = HAY / took
            report(f"search: {count} of {HAY:,} in {took:.1f} s, {rate:,.0f} records/s, {resident_mb(pid):.0f} MB")
            assert last["texts"]["live-state"] == "done"
            assert last["texts"]["live-seen"] == f"{HAY:,}"
            assert last["texts"]["live-matched"] == f"{count:,}"


def csrf_of(http: httpx.Client) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', http.get("/new-topic").text)
    assert found is not None
    return found[1]


def test_a_tail_at_a_hundred_thousand_a_second(server: OttlaServer, open_page: Callable[..., Any]) -> None:
    make_topics(server, ["rush"], PARTITIONS)
    with console(server) as (url, pid):
        page = open_page(type("Place", (), {"url": url}))
        page.goto("/topics/rush/messages?mode=tail")
        page.locator("#live-state", has_text="reading").wait_for()
        page.evaluate(
            "() => { let last = performance.now(); window.gaps = []; setInterval(() => {"
            "const now = performance.now(); window.gaps.push(now - last - 50); last = now; }, 50); }"
        )
        command = [sys.executable, "-c", WRITER, server.bootstrap_servers, "rush", str(AIM), str(TAIL_SECONDS)]
        peak, clicks = 0.0, []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            while writer.poll() is None:
                peak = max(peak, resident_mb(pid))
                began = time.monotonic()
                page.get_by_role("button", name="Light or dark").click()
                clicks.append(time.monotonic() - began)
                page.wait_for_timeout(300)
            assert writer.stdout is not None
            sent, took = writer.stdout.read().split()
        deadline = time.monotonic() + 60
        while (seen := int(page.locator("#live-seen").inner_text().replace(",", ""))) < int(sent):
            assert time.monotonic() < deadline, f"the tail saw {seen:,} of {sent}"
            page.wait_for_timeout(200)
        gaps = sorted(page.evaluate("window.gaps"))
        rows = page.locator("#message-rows tr").count()
    rate = int(sent) / float(took)
    report(
        f"tail: {rate:,.0f} messages/s, all {seen:,} counted, console {peak:.0f} MB at most, "
        f"browser late by {gaps[len(gaps) * 95 // 100]:.0f} ms (p95), click {statistics.median(clicks) * 1000:.0f} ms"
    )
    assert seen == int(sent)
    assert rows <= 300
    assert rate >= TAIL_RATE, "the writer was not fast enough for this test to mean something"
    assert peak < 200
    assert gaps[len(gaps) * 95 // 100] < 200
    assert statistics.median(clicks) < 1


def test_the_overview_with_a_thousand_topics_and_five_hundred_groups(server: OttlaServer) -> None:
    names = [f"many.{n:04}" for n in range(TOPICS)]
    make_topics(server, names, 1)
    with Cluster(client_settings(server.bootstrap_servers, {})) as cluster:
        for n in range(GROUPS):
            commit_offsets(cluster, f"group-{n:03}", {(names[n], 0): 0, (names[n + 1], 0): 0})
    make_topics(server, ["nothing.in.it"], 3)
    with console(server) as (url, pid), httpx.Client(base_url=url, timeout=60) as http:
        until_ready(http)
        times = {path: sorted(taken(http, path) for _ in range(LOOKS)) for path in ("/", "/overview/live")}
        lists = {path: statistics.median(taken(http, path) for _ in range(5)) for path in ("/topics", "/groups")}
        overview = http.get("/").text
        empty = min(taken(http, "/topics/nothing.in.it/messages") for _ in range(3))
        p95 = {path: each[LOOKS * 95 // 100] * 1000 for path, each in times.items()}
        report(
            f"overview with {TOPICS:,} topics and {GROUPS} groups: p95 {p95['/']:.0f} ms, "
            f"its refresh {p95['/overview/live']:.0f} ms, all topics {lists['/topics'] * 1000:.0f} ms, "
            f"all groups {lists['/groups'] * 1000:.0f} ms, an empty topic {empty * 1000:.0f} ms, {resident_mb(pid):.0f} MB"
        )
    told = re.findall(r'<a href="/(topics|groups)">([\d,]+)</a>', overview)
    assert ("topics", f"{own_topics(server):,}") in told
    assert ("groups", f"{GROUPS:,}") in told
    assert p95["/"] <= 300
    assert p95["/overview/live"] <= 300
    assert empty <= 1


def own_topics(server: OttlaServer) -> int:
    """Those of the other tests of this module may be there too."""
    topics = AdminClient({"bootstrap.servers": server.bootstrap_servers}).list_topics(timeout=30).topics
    found = sum(not name.startswith("__") for name in topics)
    assert found >= TOPICS + 1
    return found


def taken(http: httpx.Client, path: str) -> float:
    began = time.monotonic()
    assert http.get(path).status_code == 200
    return time.monotonic() - began


def until_ready(http: httpx.Client) -> None:
    deadline, pause = time.monotonic() + 60, threading.Event()
    while http.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline, http.get("/readyz").text
        pause.wait(0.2)
