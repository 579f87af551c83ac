"""Costly records are checked in a process that may die: the node's own process does not hold Python's lock for them."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from ottla.broker.schemas.schema_judgement import Limits, SchemaKey
from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Validator
from ottla.server.checks.check_process import CheckProcess, SchemaText
from ottla.server.checks.schemas import RegistrySchemas, _Loaded

KEY = SchemaKey("", 1)
WIDE = {"items": {"anyOf": [{"const": f"x{n}"} for n in range(5000)]}}


def schemas(schema: Any, limits: Limits) -> tuple[RegistrySchemas, list[int]]:
    """One that has this schema, and the sizes of the payloads that it checked in its own process."""
    text = SchemaText("JSON", json.dumps(schema), ())
    validator = parse_schema(*text).validator()
    own: list[int] = []

    def check(payload: bytes) -> str | None:
        own.append(len(payload))
        return validator(payload)

    async def divert(*_: Any) -> None: ...

    made = RegistrySchemas("http://127.0.0.1:9", divert, max_schemas=10, timeout_s=1, limits=limits)
    made._processes[threading.get_ident()] = CheckProcess()
    made._ready[KEY] = _Loaded(Validator(check, validator.quick_bytes), text)
    return made, own


@pytest.mark.timeout(120)
def test_a_costly_record_is_checked_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_MASTER_KEYS", "secret")
    large, wrong = b"[" + b"1," * 150_000 + b"1]", b"[" + b"1," * 150_000 + b'"x"]'
    found, own = schemas({"items": {"type": "integer"}}, Limits(batch_ms=60_000))
    try:
        assert found.problem(KEY, b"[1]") is None
        assert found.problem(KEY, large) is None
        assert found.problem(KEY, wrong) == '"x" is not of type "integer" at /150000'
        assert own == [3]
        child = found._processes[threading.get_ident()]._child
        assert child is not None
        child.kill()
        child.wait()
        assert "has ended" in (found.problem(KEY, large) or "")
        assert found.problem(KEY, large) is None, "a new process has taken its place"
        assert own == [3]
    finally:
        found.close()
    assert found._processes[threading.get_ident()]._child is None


@pytest.mark.timeout(120)
def test_a_record_that_takes_too_long_loses_its_process_and_nobody_the_schema() -> None:
    """5,000 branches for each of a million items: minutes, in which no other thread of the process ran."""
    found, own = schemas(WIDE, Limits(batch_ms=300))
    try:
        found._processes[threading.get_ident()].check(SchemaText("JSON", "{}", ()), b"1", 60.0)  # it has started
        large = b"[" + b'"x4999",' * 400_000 + b"1]"
        assert "takes longer than 300 ms" in (found.problem(KEY, large) or "")
        assert found._processes[threading.get_ident()]._child is None
        assert found.problem(KEY, b"[]") is None, "the schema stays in use for the records of others"
        assert own == [2]
    finally:
        found.close()


def test_how_large_a_payload_may_be_to_be_checked_at_once() -> None:
    def quick(kind: str, schema: Any) -> int:
        return parse_schema(kind, json.dumps(schema)).validator().quick_bytes

    assert quick("JSON", {"type": "object"}) == 256 * 1024
    assert quick("JSON", WIDE) < 2000
    assert quick("JSON", {"items": {"enum": list(range(20_000))}}) < 2000
    assert quick("JSON", {"pattern": "^a+$"}) < 256 * 1024
    assert quick("JSON", {"pattern": r"^(a*)*\\1$"}) < 10_000
    assert quick("AVRO", {"type": "array", "items": "null"}) == 5000
    assert quick("AVRO", {"type": "array", "items": "double"}) > 300_000
    assert quick("AVRO", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}) == 16 * 1024
    assert quick("AVRO", "string") > 4 << 20
