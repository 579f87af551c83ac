"""Validation at the log against schemas and records that were made to hurt: each is one error, and the broker goes on."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.schemas import schema_judgement, schema_validation
from ottla.broker.schemas.schema_judgement import (
    MAX_LOADED,
    CheckedBatch,
    InvalidRecords,
    Limits,
    NotLoaded,
    SchemaKey,
    judge,
    judge_all,
)
from ottla.env.config import TopicConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import ProduceResponse
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.registry.schemas.json_schema import JsonSchema
from ottla.testing import Broker
from tests.interop.malformed_batches import CODECS, bomb, walked, wrapped
from tests.interop.producer_session import ask, produce
from tests.registry.instances import RegistryThread, call, register
from tests.registry.test_validation import Place, framed
from tests.support.frames import RawConnection
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
    huge = {"type": "fixed", "name": "Huge", "size": 5000, "logicalType": "decimal", "precision": 4, "scale": 2}
    too_large = register(place.url, subject, huge, id=90_002, version=2)[1]["id"]
    topic, other = place.topic("refuse"), place.topic("off")
    assert place.produce(topic, [framed(bad, b"\x02")]) == [None], "a default says nothing about the data"
    [error] = place.produce(topic, [framed(too_large, bytes(5000))], retries=0)
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


def checked(values: list[bytes], first_id: int = 1, count: int = 1) -> CheckedBatch:
    ids = range(first_id, first_id + count)
    batch = build_batch([SimpleRecord(0, None, framed(schema, value)) for schema in ids for value in values])
    return CheckedBatch(TopicPartition("t", 0), batch, "quarantine", "q", ("value",), "", TopicConfig())


def test_a_batch_has_a_budget_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = _Checks(Limits(batch_ms=3000))
    monkeypatch.setattr(schema_judgement.time, "monotonic", lambda: checks.now)
    invalid_records = judge(checks, checked([b"x"] * 10), set())
    assert invalid_records is not None
    assert invalid_records.failure is not None
    assert invalid_records.failure.code == ErrorCode.INVALID_RECORD
    assert "ottla.schema.validation.max.ms" in (invalid_records.failure.message or "")
    assert len(checks.seen) == 4
    with pytest.raises(type(invalid_records.failure)):
        invalid_records.refuse()


def test_large_values_are_not_checked() -> None:
    checks = _Checks(Limits(record_bytes=100))
    invalid_records = judge(checks, checked([b"x" * 50, b"x" * 200]), set())
    assert invalid_records is not None
    assert list(invalid_records.problems) == [1]
    assert checks.seen == [b"x" * 50]


def test_a_schema_that_raises_what_nobody_foresaw_refuses_the_batch() -> None:
    class Broken(_Checks):
        def problem(self, key: SchemaKey, payload: bytes) -> str | None:
            raise ZeroDivisionError

    invalid_records = judge(Broken(Limits()), checked([b"x"]), set())
    assert invalid_records is not None
    assert invalid_records.failure is not None
    assert invalid_records.failure.code == ErrorCode.INVALID_RECORD


def test_a_request_has_a_budget_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch had one of its own: a request of 1,000 batches kept a worker for more than an hour."""
    checks = _Checks(Limits(batch_ms=3000))
    monkeypatch.setattr(schema_judgement.time, "monotonic", lambda: checks.now)
    judged = judge_all(checks, {number: checked([b"x"] * 2) for number in range(1000)})
    assert len(checks.seen) == 4
    failures = {
        invalid_records.failure.code
        for invalid_records in judged.invalid_records.values()
        if invalid_records.failure is not None
    }
    assert len(judged.invalid_records) == 998
    assert failures == {ErrorCode.REQUEST_TIMED_OUT}


def test_a_request_names_so_many_new_schemas_and_no_more() -> None:
    """Each record may name a schema that nobody knows: a megabyte made 80,000 requests to the registry."""

    class Nothing(_Checks):
        def problem(self, key: SchemaKey, payload: bytes) -> str | None:
            raise NotLoaded(key)

    judged = judge_all(
        Nothing(Limits()),
        {n: checked([b"x"], first_id=n * 1000, count=200) for n in range(3)},
    )
    assert [len(keys) for keys in judged.missing.values()] == [MAX_LOADED] * 3
    asked: list[set[SchemaKey]] = []

    class Schemas(Nothing):
        async def run(self, work: Callable[[], Any]) -> Any:
            return work()

        async def load(self, keys: set[SchemaKey]) -> None:
            asked.append(keys)

    batches = {n: checked([b"x"], first_id=n * 1000, count=200) for n in range(3)}
    invalid_records_of = asyncio.run(schema_validation._judged(Schemas(Limits()), batches))  # type: ignore[arg-type]
    assert [len(keys) for keys in asked] == [MAX_LOADED]
    codes = {
        invalid_records.failure.code
        for invalid_records in invalid_records_of.values()
        if invalid_records.failure is not None
    }
    assert (len(invalid_records_of), codes) == (3, {ErrorCode.REQUEST_TIMED_OUT})


@pytest.mark.parametrize("headers", [(), (("h", b"x" * 400_000),)])
def test_a_batch_puts_aside_so_many_bytes_and_no_more(headers: Any) -> None:
    """Records of 7 bytes, and large headers, counted as nothing."""
    count = 50 if headers else 100_000
    body = [SimpleRecord(0, None, b"", headers)] * count
    batch = CheckedBatch(TopicPartition("t", 0), build_batch(body), "quarantine", "q", ("value",), "", TopicConfig())
    invalid_records = judge(_Checks(Limits()), batch, set())
    assert invalid_records is not None
    assert invalid_records.failure is not None
    assert invalid_records.records == []
    refused = judge(_Checks(Limits()), batch._replace(mode="refuse"), set())
    assert refused is not None
    assert (refused.count, len(refused.problems)) == (count, min(count, 100))


GUID = b"\x01" + bytes(range(16))


@pytest.mark.parametrize(
    "headers",
    [[GUID, b"\x01" * 17], [b"\x01" * 17, GUID], [b"\0\0\0\0\x07"], [b""], [None], [GUID, None], [GUID[:16]]],
)
def test_a_record_names_its_schema_once(headers: list[bytes | None]) -> None:
    """Clients believe the first header, the last, or an id in it; the broker checked the record by another schema."""
    checks = _Checks(Limits())

    def judged(values: list[bytes | None]) -> InvalidRecords | None:
        body = [SimpleRecord(0, None, framed(1, b"x"), tuple(("__value_schema_id", value) for value in values))]
        batch = CheckedBatch(TopicPartition("t", 0), build_batch(body), "refuse", "q", ("value",), "", TopicConfig())
        return judge(checks, batch, set())

    invalid_records = judged(headers)
    assert invalid_records is not None
    assert "does not name one schema" in invalid_records.problems[0]
    assert checks.seen == []
    assert judged([GUID, GUID]) is None


@pytest.mark.timeout(180)
def test_a_registry_that_is_away_is_an_error_of_the_topics_that_need_it() -> None:
    """All topics of the request had the error, and their records came twice after the retry."""
    with Broker(properties={"ottla.schema.registry.url": f"http://127.0.0.1:{free_port()}"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        modes = {"plain": "off", "needs": "refuse", "bad": "refuse"}
        topics = [NewTopic(name, 1, 1, config={"ottla.schema.validation": mode}) for name, mode in modes.items()]
        for made in admin.create_topics(topics).values():
            made.result(20)
        batch = build_batch([SimpleRecord(0, b"k", framed(1, b"x"))])
        data = {"plain": batch, "needs": batch, "bad": build_batch([SimpleRecord(0, b"k", b"no id")])}
        request = ProduceRequest(
            None, -1, 10_000, [TopicProduceData(name, partition_data=[PartitionProduceData(0, bytes(each))]) for name, each in data.items()],
        )  # fmt: skip
        with RawConnection("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2])) as connection:
            response, _ = ProduceResponse.decode(ask(connection, request, 9), 0, 9)
        codes = {each.name: each.partition_responses[0].error_code for each in response.responses}
        assert codes == {"plain": 0, "needs": ErrorCode.REQUEST_TIMED_OUT, "bad": ErrorCode.INVALID_RECORD}


def test_look_around_still_works() -> None:
    check = JsonSchema(json.dumps({"pattern": "^(?!forbidden)[a-z]+$"})).validator()
    assert check(b'"allowed"') is None
    assert check(b'"forbiddenword"') is not None
