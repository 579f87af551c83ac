"""The fixtures of pytest and the mixin of unittest, each in a project of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.robustness.server_process import environment

PROJECT = """
import asyncio
import pytest

servers = set()

def test_session(ottla_broker, ottla_topic):
    ottla_broker.produce(ottla_topic, "x")
    assert [record.value for record in ottla_broker.records(ottla_topic)] == ["x"]
    assert ottla_topic.startswith("test_session-")

def test_session_again(ottla_broker, ottla_topic):
    assert ottla_broker.records(ottla_topic) == []

def test_module(ottla_broker, ottla_module_broker):
    servers.add(ottla_module_broker.bootstrap_servers)
    assert ottla_broker.bootstrap_servers not in servers

def test_module_again(ottla_module_broker):
    assert servers == {ottla_module_broker.bootstrap_servers}

@pytest.mark.parametrize("ottla_own_broker", [{"properties": {"num.partitions": "2"}}], indirect=True)
def test_own(ottla_own_broker):
    assert ottla_own_broker.node.config.num_partitions == 2

def test_asyncio(ottla_broker, ottla_topic):
    async def main():
        await asyncio.to_thread(ottla_broker.produce, ottla_topic, "x")
    asyncio.run(main())
    assert len(ottla_broker.records(ottla_topic)) == 1
"""
FAILS = """
def test_chance(ottla_broker):
    ottla_broker.faults.lose_acks(probability=0.5)
    assert False
"""
UNITTEST = """
import unittest
from ottla.testing import BrokerMixin

class OrderTest(BrokerMixin, unittest.TestCase):
    broker_options = {"properties": {"num.partitions": "2"}}

    def test_order(self):
        topic = self.broker.topic("orders")
        self.broker.faults.error("Produce", "UNKNOWN_SERVER_ERROR")
        self.broker.produce(topic, "x")
        self.assertEqual([record.value for record in self.broker.records(topic)], ["x"])

    def test_no_fault_is_left(self):
        self.assertEqual(self.broker.faults.next(0, 1), [])
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=170, cwd=folder, check=False
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_the_fixtures(tmp_path, workers):
    done = run(tmp_path, PROJECT, "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), "--rootdir", ".")
    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_a_failed_test_shows_the_seed(tmp_path):
    done = run(tmp_path, FAILS, "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".")
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "faults of ottla.testing, Broker(seed=" in done.stdout


def test_the_mixin_of_unittest(tmp_path):
    done = run(tmp_path, UNITTEST, "unittest", "-q", "test_mine")
    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr
