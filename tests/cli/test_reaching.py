"""Typical mistakes of the first hour: a wrong port, a wrong host, the port of something else. One line says which."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.cli.options.reachability import wait_for_listener
from ottla.client.errors import ConnectionFailed
from ottla.testing import Broker
from tests.support.ports import free_port

VERBS = [
    "topic list", "topic create t", "produce t x", "consume t -e", "export t out.jsonl", "group list", "config show topic t",
    "acl list", "user list", "txn list", "bench -n 100", "cluster status", "cluster quorum", "cluster balance", "top --count 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.chdir(tmp_path)


def refused(words: str, *more: str) -> str:
    done = CliRunner().invoke(ottla, [*words.split(), *more])
    assert done.exit_code == 1, (words, done.output, done.exception)
    assert len(done.output.strip().splitlines()) == 1, done.output
    return done.output


@pytest.mark.parametrize("verb", VERBS)
def test_nobody_listens(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_for_listener, "__defaults__", (0.3,))
    address = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    assert f"nothing listens on {address}" in refused(verb, "-b", address)
    assert time.monotonic() - began < 14  # and not the 15 to 60 s that a client would go on trying


def test_a_connector_says_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wait_for_listener, "__defaults__", (0.3,))
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "c.yaml").write_text("name: a\nconnector.class: file-source\nfile: in.txt\ntopic: t\n")
    address = f"127.0.0.1:{free_port()}"
    assert f"nothing listens on {address}" in refused("connect run c.yaml --once", "-b", address)
    assert capfd.readouterr().err == ""  # librdkafka logged every attempt: a thousand lines in a minute


def test_a_name_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_for_listener, "__defaults__", (0.0,))
    assert "nohost.invalid has no address" in refused("topic list -b nohost.invalid:9092")


def test_a_log_that_is_still_starting_is_waited_for() -> None:
    port = free_port()
    with pytest.raises(ConnectionFailed, match="nothing listens"):
        wait_for_listener(f"127.0.0.1:{port}", 0.1)
    servers: list[socket.socket] = []
    later = threading.Timer(0.5, lambda: servers.append(socket.create_server(("127.0.0.1", port))))
    later.start()
    try:
        wait_for_listener(f"127.0.0.1:{port}", 30)
    finally:
        later.join()
        for server in servers:
            server.close()


def test_one_of_two_addresses_is_enough(broker: Broker) -> None:
    wait_for_listener(f"127.0.0.1:{free_port()},{broker.bootstrap_servers}", 0)


def test_a_broker_that_has_no_tls(broker: Broker) -> None:
    words = ["topic", "list", "-b", broker.bootstrap_servers, "-X", "security.protocol=SSL"]
    assert "set security.protocol to PLAINTEXT" in CliRunner().invoke(ottla, words).output


@pytest.mark.parametrize(
    "verb", ["topic describe nosuch", "topic delete nosuch --yes", "config show topic nosuch", "txn describe nosuch"]
)
def test_what_is_not_there_is_named(broker: Broker, verb: str) -> None:
    assert refused(verb, "-b", broker.bootstrap_servers).startswith("Error: nosuch: ")
