"""What a request costs the loop itself: bodies, references and the turns of clients at the thread. Counted, not timed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import MutableMapping
from typing import Any

import pytest

from ottla.registry import catalogue, schema_work
from ottla.registry.catalogue import Catalogue
from ottla.registry.errors import RegistryError
from ottla.registry.http import bodies, schemas
from ottla.registry.http.answers import MAX_BRACKETS, RestResponse
from ottla.registry.http.bodies import Bodies
from ottla.registry.queries import Queries
from ottla.registry.records import SchemaReference, SchemaValue, schema_record
from ottla.registry.schema_jobs import SchemaJob, SchemaSource
from ottla.registry.schema_work import SchemaThread, SchemaWork, Unprepared
from ottla.registry.schemas.budget import Budget
from ottla.registry.service import Registry
from ottla.registry.settings import RegistrySettings
from ottla.registry.state import RegistryState
from ottla.registry.subjects import normal
from tests.registry.instances import call

VERSIONS = 40


def test_a_body_of_brackets_is_refused_before_it_is_decoded(url: str) -> None:
    body = b'{"metadata":{"a":[' + b"[]," * MAX_BRACKETS + b"[]]}}"
    assert call(url, "POST", "/subjects/brackets/versions", body)[0] == 413
    assert call(url, "PUT", "/config/brackets", body)[0] == 413


def test_bodies_in_memory_have_one_limit_and_small_ones_are_always_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_HELD_BYTES", 300_000)

    async def run() -> None:
        held = Bodies(1_000_000)
        waiting = asyncio.Event()

        async def slow(first: list[bytes]) -> MutableMapping[str, Any]:
            if first:
                return {"type": "http.request", "body": first.pop(), "more_body": True}
            await waiting.wait()
            return {"type": "http.disconnect"}

        async def read(size: int) -> int:
            async def receive() -> MutableMapping[str, Any]:
                return {"type": "http.request", "body": b"x" * size, "more_body": False}

            async with held.read(receive) as body:
                return len(body)

        async def half() -> None:
            sent = [b"x" * 250_000]
            async with held.read(lambda: slow(sent)):
                pass

        sender = asyncio.ensure_future(half())
        await asyncio.sleep(0)
        assert held.held == 250_000
        with pytest.raises(RegistryError, match="Too many large requests"):
            await read(100_000)
        assert await read(60_000) == 60_000
        waiting.set()
        with pytest.raises(RegistryError, match="went away"):
            await sender
        assert held.held == 0
        assert await read(100_000) == 100_000

    asyncio.run(run())


def wide_references(state: RegistryState) -> tuple[SchemaReference, ...]:
    """20 schemas that each refer to the same 50: 1,000 ways, and 70 schemas."""
    for i in range(50):
        state.replay(*schema_record(SchemaValue(f"leaf{i}", 1, 1 + i, False, schema='"int"')))
    leaves = tuple(SchemaReference(f"l{i}", f"leaf{i}", 1) for i in range(50))
    for i in range(20):
        state.replay(*schema_record(SchemaValue(f"mid{i}", 1, 100 + i, False, references=leaves, schema='"int"')))
    return tuple(SchemaReference(f"m{i}", f"mid{i}", 1) for i in range(20))


def test_references_of_earlier_versions_are_looked_up_a_few_a_turn_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state = RegistryState()
    references = wide_references(state)
    for version in range(1, VERSIONS + 1):
        text = json.dumps({"type": "record", "name": f"R{version}", "fields": []})
        state.replay(
            *schema_record(SchemaValue("s", version, 200 + version, False, references=references, schema=text))
        )
    state.configs["s"] = {"compatibilityLevel": "BACKWARD_TRANSITIVE"}
    queries = Queries(state, Catalogue(state))
    found: list[str] = []
    find = Catalogue._find

    def counted(self: Catalogue, context: str, reference: SchemaReference, *, deleted: bool) -> SchemaValue:
        found.append(reference.subject)
        return find(self, context, reference, deleted=deleted)

    monkeypatch.setattr(catalogue.Catalogue, "_find", counted)
    work, turns = SchemaWork(SchemaThread()), 0
    while True:
        before = len(found)
        try:
            queries.findings(work, "s", SchemaSource("AVRO", '"int"'))
            break
        except Unprepared as missing:
            turns += 1
            work._done.update((job, []) for job in missing.jobs)
        assert len(found) - before <= 10 * 70, "each schema once a version, few versions a turn"
    assert turns == VERSIONS // 10
    assert len(found) == VERSIONS * 70, "nothing is looked up again in the next turn"


def test_a_long_name_is_checked_by_the_engine_not_letter_by_letter() -> None:
    class Watched(str):
        __slots__ = ()

        def __iter__(self) -> Any:
            raise AssertionError("read in Python, letter by letter, for each reference of a schema")

    assert normal(Watched("x" * 4000)) == "x" * 4000
    for letter in "\x00\x1f\x7f\n":
        with pytest.raises(RegistryError):
            normal(f"a{letter}b")


def test_clients_take_turns_at_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client has 20 jobs waiting, and another comes with one: it is the next but one."""
    order: list[str] = []
    started = threading.Event()

    def noted(_: SchemaThread, job: SchemaJob, __: Budget) -> str:
        started.wait(10)
        order.append(job.source.text)
        return ""

    monkeypatch.setattr(SchemaThread, "_run", noted)

    async def run() -> None:
        thread = SchemaThread()
        jobs = [
            thread.run(SchemaJob("canonical", SchemaSource("AVRO", f"greedy{i}")), Budget(), "greedy")
            for i in range(20)
        ]
        tasks = [asyncio.ensure_future(job) for job in jobs]
        await asyncio.sleep(0)
        tasks.append(
            asyncio.ensure_future(
                thread.run(SchemaJob("canonical", SchemaSource("AVRO", "modest")), Budget(), "modest")
            )
        )
        await asyncio.sleep(0)
        started.set()
        await asyncio.gather(*tasks)
        assert not thread._clients
        monkeypatch.setattr(schema_work, "MAX_WAITING_OF_A_CLIENT", 0)
        with pytest.raises(RegistryError, match="Too many schemas"):
            await thread.run(SchemaJob("canonical", SchemaSource("AVRO", "x")), Budget(), "greedy")
        thread.stop()

    asyncio.run(run())
    assert order.index("modest") <= 2


def test_requests_that_look_for_the_writer_share_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search is a client of the cluster and a thread of the pool that checks passwords."""
    asked: list[str] = []

    def writer_id(_: RegistrySettings) -> str:
        asked.append("")
        return f"http://writer:{len(asked)}"

    monkeypatch.setattr("ottla.registry.service.writer_id", writer_id)

    async def run() -> None:
        registry = Registry(RegistrySettings(bootstrap_servers="127.0.0.1:1"), "http://here:1")
        found = await asyncio.gather(*(registry.find_writer(again=True) for _ in range(50)))
        assert {peer.url for peer in found if peer is not None} == {"http://writer:1"}
        assert await registry.find_writer(again=True) != found[0]
        registry.schemas.stop()

    asyncio.run(run())
    assert len(asked) == 2


def test_schemas_are_listed_in_slices_and_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '"' + "x" * 1000 + '"'
    values = [SchemaValue(subject=f"s{n}", version=1, id=n + 1, deleted=False, schema=text) for n in range(50)]
    turns = 0

    async def list_all() -> tuple[RestResponse, int]:
        nonlocal turns
        done = asyncio.ensure_future(schemas._listed(values))
        while not done.done():
            turns += 1
            await asyncio.sleep(0)
        return done.result(), turns

    monkeypatch.setattr(schemas, "_SLICE_BYTES", 10_000)
    found, turns = asyncio.run(list_all())
    assert [each["subject"] for each in json.loads(found.body)] == [value.subject for value in values]
    assert turns >= 5
    monkeypatch.setattr(schemas, "_MAX_LISTED_BYTES", 20_000)
    with pytest.raises(RegistryError, match="use limit and offset"):
        asyncio.run(schemas._listed(values))
    assert json.loads(asyncio.run(schemas._listed([])).body) == []
