"""`ottla.testing`: the broker for tests and notebooks, its fixture, and the example that its docstring gives."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import ottla.testing
from ottla.env.config.problems import ConfigError
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.robustness.server_process import environment


def write(servers: str, count: int = 3) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce("t", str(number))
    assert producer.flush(60) == 0


def read(servers: str, count: int = 3) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    try:
        return [message.value() for message in consumer.consume(count, 60)]
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
        producer.flush(60)
        assert errors[0] is not None


def test_a_start_that_fails_says_why_and_can_be_tried_again(tmp_path):
    with Broker(directory=tmp_path) as first:
        second = Broker(directory=tmp_path)
        with pytest.raises(StartupError, match="another server"):
            second.start()
        assert first.bootstrap_servers
    with second:
        assert second.bootstrap_servers


def test_a_folder_that_log_dirs_cannot_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="comma"):
        Broker(directory=tmp_path / "a,b")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["with space", "ünïcödé 日本", "quote'\"", "percent%20", " lead", "back\\slash"])
def test_odd_folders(tmp_path, name):
    for _ in range(2):
        with Broker(directory=tmp_path / name) as broker:
            assert broker.bootstrap_servers
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_start_that_fails_leaves_no_folder():
    broker = Broker(properties={"no.such.setting": "1"})
    with pytest.raises(ConfigError, match=r"no\.such\.setting"):
        broker.start()
    assert not broker.directory.exists()


def test_a_start_that_is_interrupted_leaves_nothing(monkeypatch):
    here, result = threading.get_ident(), Future.result

    def interrupted(future: Future[object], timeout: float | None = None) -> object:
        if threading.get_ident() == here:
            raise KeyboardInterrupt
        return result(future, timeout)

    broker = Broker()
    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        broker.start()
    assert time.monotonic() - begun < 20, "it waited for a broker that nobody had told to stop"
    assert not broker.directory.exists()
    monkeypatch.undo()
    with broker:
        assert broker.bootstrap_servers


_UNSTOPPED = """
import os, sys
from ottla.testing import Broker

broker = Broker().start()
if (child := os.fork()) == 0:
    broker.stop()  # it is the parent's
    os._exit(0)
os.waitpid(child, 0)
from confluent_kafka.admin import AdminClient

assert AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60).brokers
assert broker.directory.exists()
print(broker.directory)
"""


def test_a_broker_that_nobody_stops_outlives_a_fork_and_goes_with_the_interpreter():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _UNSTOPPED],
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert not Path(done.stdout.strip()).exists()


def test_the_docstrings_example_runs(tmp_path):
    text = ottla.testing.__doc__
    assert text is not None
    example = textwrap.dedent(text.split("\n\n", 1)[1])
    program = (
        "from confluent_kafka import Producer\n"
        + example
        + '\n    producer.produce("t", b"hello")\n    assert producer.flush(60) == 0\n    print("done")\n'
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
            assert producer.flush(60) == 0

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


def test_the_plugin_leaves_the_node_alone_until_a_test_uses_it():
    """Every run of pytest imports the plugin, also where no test needs a broker."""
    code = """
import sys, ottla.testing.pytest_plugin
assert "ottla.server.node" not in sys.modules
from ottla.testing import Broker
assert "ottla.server.node" in sys.modules
try:
    ottla.testing.Brokers
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "module 'ottla.testing' has no attribute 'Brokers'\n"


def _entry_point() -> bool:
    from importlib.metadata import entry_points

    return "ottla" in entry_points(group="pytest11").names


def test_a_broker_in_anothers_program_says_nothing():
    """It shares the standard error with the program that it is a guest of: a test of what that one prints stays one."""
    code = "from ottla.testing import Broker\nwith Broker() as broker: print(broker.bootstrap_servers)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    assert done.stdout.startswith("127.0.0.1:")


def test_pytest_does_not_rewrite_the_modules_of_a_node() -> None:
    """A node imports some modules while it runs: rewriting parses them on its loop, and two parsers at once may fail in
    CPython 3.11.
    """
    import ottla.log.segment
    import ottla.raft.node

    for module in (ottla.raft.node, ottla.log.segment):
        assert type(module.__loader__).__name__ == "SourceFileLoader"
