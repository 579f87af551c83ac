"""Validation at the log against schemas and records that were made to hurt: each is one error, and the broker goes on."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from ottla.broker import schema_judgement
from ottla.broker.schema_judgement import CheckedBatch, Limits, SchemaKey, judge
from ottla.env.config import TopicConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.registry.schemas.json_schema import JsonSchema
from ottla.testing import Broker
from tests.interop.malformed_batches import CODECS, bomb, walked, wrapped
from tests.interop.producer_session import produce
from tests.registry.instances import RegistryThread, call, register
from tests.registry.test_validation import Place, framed
from tests.support.ports import free_port

LIST = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
NULLS = {"type": "array", "items": "null"}


def record(name: str, kind: Any, default: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": kind, "default": default}]}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    port = free_port()
    properties = {"ottla.schema.registry.url": f"http://127.0.0.1:{port}"}
    with Broker(properties=properties) as broker, RegistryThread(broker.bootstrap_servers, at=port) as registry:
        yield Place(broker, registry.url)


@pytest.mark.timeout(180)
def test_one_record_does_not_end_the_broker(place: Place) -> None:
    topic = place.topic("refuse")
    deep = register(place.url, "deep", LIST)[1]["id"]
    wide = register(place.url, "wide", NULLS)[1]["id"]
    for bad in (framed(deep, b"\x02" * 20_000 + b"\0"), framed(wide, b"\x80\x80\x80\x80\x08\0")):
        [error] = place.produce(topic, [bad])
        assert error.code() == KafkaError.INVALID_RECORD
    assert place.produce(topic, [framed(deep, b"\x02\x02\0"), framed(wide, b"\x04\0")]) == [None, None]


@pytest.mark.timeout(180)
def test_patterns_end_after_a_bounded_number_of_steps(place: Place) -> None:
    """Each text took 50 ms with the engine's own limit, and 300 of them 15 s on the loop."""
    topic = place.topic("refuse")
    schema = {"type": "array", "items": {"type": "string", "pattern": r"^(a*)*\1$"}}
    slow = register(place.url, "slow", schema, "JSON")[1]["id"]
    [error] = place.produce(topic, [framed(slow, json.dumps(["a" * 40 + "b"] * 300).encode())])
    assert error.code() == KafkaError.INVALID_RECORD
    assert place.produce(topic, [framed(slow, b'["aa"]')]) == [None]


@pytest.mark.timeout(180)
def test_deep_json_is_an_error(place: Place) -> None:
    topic = place.topic("refuse")
    any_json = register(place.url, "any", {}, "JSON")[1]["id"]
    for depth in (300, 900, 100_000):
        [error] = place.produce(topic, [framed(any_json, b"[" * depth + b"]" * depth)])
        assert error.code() == KafkaError.INVALID_RECORD, depth
    assert place.produce(topic, [framed(any_json, b"[" * 100 + b"]" * 100)]) == [None]


@pytest.mark.parametrize(
    ("kind", "default", "good"),
    [
        ("int", "x", False), ("int", 1.0, False), ("int", 1 << 31, False), ("int", 5, True), ("long", 1 << 40, True),
        ("int", True, False), ("boolean", 0, False), ("float", 1, True), ("double", "NaN", False), ("null", None, True),
        ("string", None, False), ("bytes", "\u00ff", True), (["null", "int"], None, True), (["null", "int"], 5, True),
        (["null", "int"], "x", False), ({"type": "array", "items": "int"}, ["x"], False),
        ({"type": "map", "values": "int"}, {"k": 1}, True), ({"type": "map", "values": "int"}, [], False),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, 1, False),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}, {}, False),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 1}]}, {}, True),
        (["R", "null"], {}, False),
    ],
)  # fmt: skip
@pytest.mark.timeout(180)
def test_registration_refuses_bad_defaults_as_confluent_does(place: Place, kind: Any, default: Any, good: bool) -> None:
    status, answer = register(place.url, f"d-{uuid.uuid4().hex[:8]}", record("R", kind, default))
    if good:
        assert status == 200, answer
    else:
        assert (status, answer["error_code"]) == (422, 42201)
        assert "Invalid default for field a" in answer["message"]


@pytest.mark.timeout(180)
def test_a_default_of_many_branches_is_judged_in_bounded_steps(place: Place) -> None:
    """Each level of the value fits each of the branches but for its end: 40 to the power of 12 ways."""
    branches = [
        {
            "type": "record",
            "name": f"B{n}",
            "fields": [{"name": "x", "type": ["null", "int", *[f"B{k}" for k in range(n)]]}],
        }
        for n in range(40)
    ]
    default: Any = "not an int"
    for _ in range(12):
        default = {"x": default}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": branches, "default": default}]}
    status, answer = register(place.url, "many-branches", schema)
    assert (status, answer["error_code"]) == (422, 42201)


@pytest.mark.timeout(180)
def test_a_schema_that_cannot_be_used_is_an_error_of_its_records_only(place: Place) -> None:
    """An imported schema is not judged again; before, each produce with it lost its connection."""
    subject = f"i-{uuid.uuid4().hex[:8]}"
    assert call(place.url, "PUT", f"/mode/{subject}", {"mode": "IMPORT"})[0] == 200
    bad = register(place.url, subject, record("Bad", "int", "x"), id=90_001, version=1)[1]["id"]
    deep: Any = "int"
    for _ in range(250):
        deep = {"type": "array", "items": deep}
    too_deep = register(place.url, subject, deep, id=90_002, version=2)[1]["id"]
    topic, other = place.topic("refuse"), place.topic("off")
    assert place.produce(topic, [framed(bad, b"\x02")]) == [None], "a default says nothing about the data"
    [error] = place.produce(topic, [framed(too_deep, b"\0")], retries=0)
    assert error.code() == KafkaError.INVALID_RECORD
    assert place.produce(other, [b"x"]) == [None]


@pytest.mark.timeout(180)
def test_ids_are_looked_up_in_the_topics_context(place: Place) -> None:
    """Ids count anew in each context: the same id means different schemas."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "i", "type": "string"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "o", "type": "Inner"}]}
    assert register(place.url, ":.ctx:inner", inner)[0] == 200
    references = [{"name": "Inner", "subject": "inner", "version": 1}]
    status, answer = register(place.url, ":.ctx:outer", outer, references=references)
    assert status == 200, answer
    topic = place.topic("refuse", **{"ottla.schema.validation.context": ".ctx"})
    plain = place.topic("refuse")
    value = framed(answer["id"], b"\x04ab")
    assert place.produce(topic, [value]) == [None]
    [error] = place.produce(plain, [framed(answer["id"] + 50_000, b"\x04ab")])
    assert error.code() == KafkaError.INVALID_RECORD
    [error] = place.produce(topic, [framed(answer["id"], b"\x04a")])
    assert error.code() == KafkaError.INVALID_RECORD


@pytest.mark.timeout(180)
def test_what_cannot_be_read_is_refused_and_not_passed_on(place: Place) -> None:
    """Validation left such batches to the log, which does not look into them: any record came in by that way."""
    topic = place.topic("refuse")
    port = int(place.broker.bootstrap_servers.rpartition(":")[2])
    hidden = {"bomb": bomb(110, CODECS["zstd"]), "garbage": wrapped(b"\x5a" * 64, 1, CODECS["gzip"])}
    batches = {name: batch for name, batch in walked().items() if name.startswith(("bytes after", "an overlong time"))}
    for name, batch in {**hidden, **batches}.items():
        assert produce(port, topic, batch).error_code in (-1, ErrorCode.INVALID_RECORD), name
    assert place.end(topic) == 0


class _Checks:
    """A schema that needs its time: one tick of the clock for each record."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.seen: list[bytes] = []
        self.now = 0.0

    def problem(self, key: SchemaKey, payload: bytes) -> str | None:
        assert threading.current_thread() is threading.main_thread()
        self.seen.append(payload)
        self.now += 1.0
        return None


def checked(values: list[bytes]) -> CheckedBatch:
    batch = build_batch([SimpleRecord(0, None, framed(1, value)) for value in values])
    return CheckedBatch(TopicPartition("t", 0), batch, "quarantine", "q", ("value",), "", TopicConfig())


def test_a_batch_has_a_budget_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = _Checks(Limits(batch_ms=3000))
    monkeypatch.setattr(schema_judgement.time, "monotonic", lambda: checks.now)
    misfits = judge(checks, checked([b"x"] * 10), set())
    assert misfits is not None
    assert misfits.failure is not None
    assert misfits.failure.code == ErrorCode.INVALID_RECORD
    assert "ottla.schema.validation.max.ms" in (misfits.failure.message or "")
    assert len(checks.seen) == 4
    with pytest.raises(type(misfits.failure)):
        misfits.refuse()


def test_large_values_are_not_checked() -> None:
    checks = _Checks(Limits(record_bytes=100))
    misfits = judge(checks, checked([b"x" * 50, b"x" * 200]), set())
    assert misfits is not None
    assert list(misfits.problems) == [1]
    assert checks.seen == [b"x" * 50]


def test_a_schema_that_raises_what_nobody_foresaw_refuses_the_batch() -> None:
    class Broken(_Checks):
        def problem(self, key: SchemaKey, payload: bytes) -> str | None:
            raise ZeroDivisionError

    misfits = judge(Broken(Limits()), checked([b"x"]), set())
    assert misfits is not None
    assert misfits.failure is not None
    assert misfits.failure.code == ErrorCode.INVALID_RECORD


def test_look_around_still_works() -> None:
    check = JsonSchema(json.dumps({"pattern": "^(?!forbidden)[a-z]+$"})).validator()
    assert check(b'"allowed"') is None
    assert check(b'"forbiddenword"') is not None
