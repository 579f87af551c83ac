"""`ottla.testing`: the broker for tests and notebooks, its fixture, and the example that its docstring gives."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import threading

import pytest
from confluent_kafka import Consumer, Producer

import ottla.testing
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.robustness.server_process import environment


def write(servers: str, count: int = 3) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce("t", str(number))
    assert producer.flush(10) == 0


def read(servers: str, count: int = 3) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    try:
        return [message.value() for message in consumer.consume(count, 15)]
    finally:
        consumer.close()


def test_a_broker_for_a_block_leaves_nothing():
    before = set(threading.enumerate())  # other tests of this process may keep a broker of their own
    with Broker() as broker:
        directory = broker.directory
        assert directory.exists()
        write(broker.bootstrap_servers)
        assert read(broker.bootstrap_servers) == [b"0", b"1", b"2"]
    assert not directory.exists()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "ottla-broker"]
    with pytest.raises(RuntimeError):
        _ = broker.bootstrap_servers


def test_a_directory_of_ones_own_keeps_the_data(tmp_path):
    with Broker(directory=tmp_path) as broker:
        write(broker.bootstrap_servers)
    with Broker(directory=tmp_path) as broker:
        assert read(broker.bootstrap_servers) == [b"0", b"1", b"2"]
    assert (tmp_path / "data/.kafka_cleanshutdown").exists()


def test_the_same_broker_starts_again(tmp_path):
    broker = Broker(directory=tmp_path)
    for _ in range(2):
        with broker:
            assert broker.bootstrap_servers
            with pytest.raises(RuntimeError):
                broker.start()


def test_two_brokers_at_once():
    with Broker() as one, Broker() as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        write(one.bootstrap_servers, 1)
        write(two.bootstrap_servers, 2)


def test_properties():
    with Broker(properties={"auto.create.topics.enable": "false"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 1500})
        errors = []
        producer.produce("missing", b"x", on_delivery=lambda error, _: errors.append(error))
        producer.flush(10)
        assert errors[0] is not None


def test_a_start_that_fails_says_why_and_can_be_tried_again(tmp_path):
    with Broker(directory=tmp_path) as first:
        second = Broker(directory=tmp_path)
        with pytest.raises(StartupError, match="another server"):
            second.start()
        assert first.bootstrap_servers
    with second:
        assert second.bootstrap_servers


def test_the_docstrings_example_runs(tmp_path):
    text = ottla.testing.__doc__
    assert text is not None
    example = textwrap.dedent(text.split("\n\n", 1)[1])
    program = (
        "from confluent_kafka import Producer\n"
        + example
        + '\n    producer.produce("t", b"hello")\n    assert producer.flush(10) == 0\n    print("done")\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=40, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_the_pytest_fixture(tmp_path):
    """In a project of its own, with nothing but the plug-in."""
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent("""
        from confluent_kafka import Producer

        def test_one(ottla_broker):
            producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers})
            producer.produce("t", b"x")
            assert producer.flush(10) == 0

        def test_the_same_broker(ottla_broker):
            assert ottla_broker.bootstrap_servers
        """)
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    if not shutil.which("ottla") and not _entry_point():
        command += ["-p", "ottla.testing.pytest_plugin"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=50, cwd=tmp_path, check=False
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def _entry_point() -> bool:
    from importlib.metadata import entry_points

    return "ottla" in entry_points(group="pytest11").names
