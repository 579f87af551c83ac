"""Names and records of peers on an operator's terminal: what a stranger wrote is shown, and steers nothing.

An escape sequence may change the title, the clipboard or the text that was printed before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.model.peer_text import visible, visible_json
from ottla.testing import Broker
from tests.cli.test_terminal import in_a_pipe, on_a_terminal

TITLE = "\x1b]0;pwned\x07"
CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"
EIGHT_BIT = "\x9b2J"
OVERWRITE = "\rall is well"
BACKWARDS = "\u202egnp.exe"
HOSTILE = TITLE + CLIPBOARD + EIGHT_BIT + OVERWRITE + BACKWARDS
CONSUME = ("consume", "t", "--from", "beginning", "--count", "1")
SEQUENCES = ("\x1b]", "\x9b", "\x07", "\rall", "\u202e")


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with Broker() as running:
        where = {"bootstrap.servers": running.bootstrap_servers}
        admin = AdminClient(where)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        producer = Producer(where)
        producer.produce("t", HOSTILE.encode(), HOSTILE.encode(), headers=[(HOSTILE, HOSTILE.encode())])
        assert producer.flush(30) == 0
        consumer = Consumer({**where, "group.id": f"g{HOSTILE}", "client.id": HOSTILE, "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        assert consumer.poll(60) is not None
        consumer.commit(asynchronous=False)
        yield running.bootstrap_servers
        consumer.close()


@pytest.mark.parametrize(
    "words",
    [
        (*CONSUME,),
        (*CONSUME, "-o", "json"),
        (*CONSUME, "-o", "yaml"),
        (*CONSUME, "-f", "%k %v %h\\n"),
        ("sql", "select key, value from t"),
        ("sql", "select key, value from t", "-o", "json"),
        ("group", "list"),
        ("group", "list", "-o", "json"),
        ("group", "describe", f"g{HOSTILE}"),
        ("group", "describe", f"g{HOSTILE}", "-o", "json"),
        ("group", "describe", f"g{HOSTILE}", "-o", "yaml"),
    ],
    ids=lambda words: " ".join(visible(word) for word in words),
)
def test_nothing_steers_the_terminal(broker: str, words: tuple[str, ...]) -> None:
    seen = on_a_terminal(broker, *words)
    assert "pwned" in seen or b"pwned".hex(" ") in seen  # `consume` shows such values as hex
    assert [sequence for sequence in SEQUENCES if sequence in seen] == []


def test_a_program_reads_the_same_names(broker: str) -> None:
    groups = json.loads(in_a_pipe(broker, "group", "list", "-o", "json"))
    assert [row["group"] for row in groups] == [f"g{HOSTILE}"]


def test_what_is_visible() -> None:
    assert visible("a\x1b[31m\n\tb\x9b\u202e") == "a\\x1b[31m\\x0a\\x09b\\x9b\\u202e"
    assert visible("one\n\ttwo\r", lines=True) == "one\n\ttwo\\x0d"
    assert visible("\u00e4 \u4e2d \U0001f600") == "\u00e4 \u4e2d \U0001f600"
    assert json.loads(visible_json(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE
