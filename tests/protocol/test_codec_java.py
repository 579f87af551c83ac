"""Agreement with Kafka's own classes: every message and record that we generate, every version, value by value."""

from __future__ import annotations

from random import Random

import pytest

from tests.protocol.java_oracle import ask, dump
from tests.protocol.message_values import NAMES, filled, message_class, random_message, versions
from tests.support.kafka_jars import Unavailable

VALUES_PER_VERSION = 6


def agree(questions, values):
    try:
        answers = ask(questions)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert len(answers) == len(questions)
    wrong = []
    for (name, version, raw), message, answer in zip(questions, values, answers, strict=True):
        decoded = message_class(name).decode(raw, 0, version)[0]
        ours = f"{dump(decoded)} {raw.hex()} 0"
        if ours != answer:
            wrong.append(f"{name} v{version}\n  sent {message}\n  ours {ours}\n  java {answer}")
    assert not wrong, f"{len(wrong)} of {len(questions)} differ:\n" + "\n".join(wrong[:10])


@pytest.mark.interop
def test_kafka_reads_the_same_values_and_writes_the_same_bytes():
    random = Random(431)
    questions, values = [], []
    for name in NAMES:
        cls = message_class(name)
        for version in versions(cls):
            drawn = [random_message(random, cls, version, nulls=True) for _ in range(VALUES_PER_VERSION)]
            for message in [filled(cls), *drawn]:
                values.append(message)
                questions.append((name, version, message.to_bytes(version)))
    agree(questions, values)
