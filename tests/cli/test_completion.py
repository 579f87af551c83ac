"""The Tab key: names of topics and groups, and silence within about a second where no cluster answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete
from confluent_kafka import Consumer, TopicPartition

from ottla.cli.commands import ottla
from ottla.cli.options import completions
from ottla.client.cluster import Cluster
from ottla.client.settings import client_settings
from ottla.client.topics import create_topic
from ottla.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with Cluster(client_settings(running.bootstrap_servers)) as cluster:
            for name in ("orders", "orders-eu", "payments"):
                create_topic(cluster, name, partitions=1, replication_factor=1)
        reader = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": "billing"})
        reader.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        reader.close()
        yield running


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    items = ShellComplete(ottla, {}, "ottla", "_OTTLA_COMPLETE").get_completions(list(before), incomplete)
    return [item.value for item in items]


@pytest.mark.parametrize(
    "words",
    [
        ("consume",),
        ("produce",),
        ("export",),
        ("topic", "describe"),
        ("topic", "delete"),
        ("group", "reset", "billing"),
    ],
    ids=" ".join,
)
def test_topics(broker: Broker, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setattr(completions, "WAIT_S", 60.0)
    monkeypatch.setattr(completions, "_CALL_MS", 60_000)
    assert completed(words[0], *words[1:], "-b", broker.bootstrap_servers, "ord") == ["orders", "orders-eu"]


def test_groups(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "WAIT_S", 60.0)
    monkeypatch.setattr(completions, "_CALL_MS", 60_000)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    assert completed("group", "describe", "") == ["billing"]


def test_a_server_that_does_not_answer_is_left_after_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(completions, "_CALL_MS", 60_000)
        began = time.monotonic()
        assert completed("consume", "-b", address, "") == []
        assert time.monotonic() - began < 30  # far below the 60 s of the call: only the bound ends it


def test_nothing_listens(capfd: pytest.CaptureFixture[str]) -> None:
    assert completed("consume", "-b", "127.0.0.1:1", "") == []
    assert completed("consume", "--profile", "none", "") == []
    assert capfd.readouterr() == ("", "")
