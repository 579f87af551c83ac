"""Mutated schemas in large number: a problem in one line or a schema, within the steps, and nothing else."""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter
from functools import lru_cache

import pytest

from ottla.registry.schemas.budget import MAX_STEPS, Budget
from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import ParsedSchema, SchemaProblem
from tests.registry.instances import call
from tests.registry.mutations import Mutations

MAX_GROWTH_MB = 300


def check_seeds(seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        kind, old, new = Mutations(seed).pair()
        try:
            found[_check(kind, old, new)] += 1
        except SchemaProblem as error:
            problem = str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        else:
            continue
        found["refused"] += 1
        assert "\n" not in problem
        problem.encode()
    return found


@lru_cache(maxsize=64)
def _base(kind: str, text: str) -> ParsedSchema:
    """Most mutations start from one of a few schemas."""
    return parse_schema(kind, text)


def _check(kind: str, old: str, new: str) -> str:
    budget = Budget()
    try:
        schema = parse_schema(kind, new, (), budget)
        for text in (schema.canonical, schema.normalized(), schema.serialized()):
            text.encode()
        again = parse_schema(kind, schema.canonical)
        assert again.canonical == schema.canonical, "the stored text means something else"
        assert schema.incompatibilities(again, Budget()) == []
        other = _base(kind, old)
        for one, two in ((schema, other), (other, schema)):
            for reason in one.incompatibilities(two, Budget()):
                reason.shown().encode()
    except RecursionError:
        return "deep"  # the registry's thread answers 42201
    finally:
        assert budget.spent <= MAX_STEPS + 1_000_000, "one spending was larger than any document"
    return "read"


def test_a_thousand_mutated_schemas() -> None:
    found = check_seeds(range(1000))
    assert found["read"] > 100
    assert found["refused"] > 100


def test_seeds_that_failed_once() -> None:
    """Names in patternProperties that are no expression; imports and types of a descriptor with a line break in them; an `$id` that is no
    address."""
    for seed in (5007, 8588, 13469, 143826, 509350):
        check_seeds(range(seed, seed + 1))


def test_mutated_schemas_over_http_are_never_a_server_error(url: str) -> None:
    for seed in range(5000, 5060):
        kind, old, new = Mutations(seed).pair()
        subject = f"mutated-{seed}"
        for text in (old, new):
            body = json.dumps({"schema": text, "schemaType": kind}).encode()
            for path in (
                f"/subjects/{subject}/versions",
                f"/compatibility/subjects/{subject}/versions/latest?verbose=true",
            ):
                status, answer = call(url, "POST", path, body)
                assert status in {200, 400, 409, 422}, (seed, status, answer)


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_a_million_mutated_schemas() -> None:
    check_seeds(range(2000))
    before = _largest_mb()
    print(check_seeds(range(2000, 1_000_000)))
    assert _largest_mb() - before < MAX_GROWTH_MB


def _largest_mb() -> int:
    """Linux counts in kilobytes, macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (10 if sys.platform == "linux" else 20)
