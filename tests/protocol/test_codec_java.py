"""Agreement with Kafka's own classes: every message and record that we generate, every version, value by value."""

from __future__ import annotations

from random import Random

import pytest
from tests.protocol.java_oracle import ask, dump
from tests.protocol.message_values import NAMES, filled, message_class, random_message, versions
from tests.protocol.mutations import mutated
from tests.support.kafka_jars import Unavailable

from ottla.protocol.primitives import DecodeError

VALUES_PER_VERSION = 6
MUTATIONS_PER_VERSION = 20


def answers_to(questions):
    try:
        answers = ask(questions)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert len(answers) == len(questions)
    return answers


def agree(questions, values):
    answers = answers_to(questions)
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


def reads(name, version, raw):
    """What we read and how many bytes are left, or "! reason"."""
    try:
        message, end = message_class(name).decode(raw, 0, version)
    except DecodeError as error:
        return f"! {error}"
    return f"{dump(message)} {len(raw) - end}"


def same_reading(ours, theirs):
    if ours.startswith("!"):
        return theirs.startswith("!") or "a varint is over" in ours  # Kafka sees such a length as a negative one: null
    if theirs.startswith("!"):
        return "Invalid raw tag field list" in theirs  # it read the bytes and only then refused to write them again
    text, _, left = theirs.rsplit(" ", 2)
    return ours == f"{text} {left}" or "efbfbd" in ours  # U+FFFD for broken UTF-8: one for how many bytes may differ


@pytest.mark.interop
def test_kafka_reads_bad_bytes_as_we_do():
    random = Random(4310)
    questions = []
    for name in NAMES:
        cls = message_class(name)
        for version in versions(cls):
            for _ in range(MUTATIONS_PER_VERSION):
                raw = random_message(random, cls, version, nulls=True).to_bytes(version)
                questions.append((name, version, mutated(random, raw)))
    answers = answers_to(questions)
    pairs = [(question, reads(*question), answer) for question, answer in zip(questions, answers, strict=True)]
    wrong = [pair for pair in pairs if not same_reading(pair[1], pair[2])]
    assert wrong == []
    assert 0.1 < sum(ours.startswith("!") for _, ours, _ in pairs) / len(pairs) < 0.9
