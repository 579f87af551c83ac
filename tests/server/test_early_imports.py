"""The first member of a group imports nothing on the loop: 60 modules in one turn held everybody else for 205 ms."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, time
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from ottla.testing import Broker

with Broker() as broker:
    client = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(client)
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    from ottla.server.early_imports import GROUP_MODULES
    deadline = time.monotonic() + 60
    while not {*GROUP_MODULES} <= sys.modules.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    producer = Producer(client)
    producer.produce("t", b"x")
    producer.flush(60)
    before = {*sys.modules}
    for protocol in ("consumer", "classic"):
        reader = Consumer(
            {**client, "group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        )
        reader.subscribe(["t"])
        assert reader.poll(60) is not None
        reader.commit(asynchronous=False)
        print(protocol, *sorted(name for name in sys.modules if name.startswith("ottla.") and name not in before))
        before |= {*sys.modules}
"""
OF_ALL_CLIENTS = {"ottla.broker.handlers.list_offsets", "ottla.protocol.generated.list_offsets_response"}
"""A consumer asks for offsets of topics too."""


def test_a_first_member_imports_no_module_of_groups() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=True)
    imported = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    assert imported.keys() == {"consumer", "classic"}
    groups = {name for names in imported.values() for name in names.split() if "group" in name or "offset" in name}
    assert groups <= OF_ALL_CLIENTS
