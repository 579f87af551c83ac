"""Schemas that are small and cost minutes: each is refused or judged within its steps, and nobody waits meanwhile."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ottla.registry.schema_work import SchemaThread
from ottla.registry.schemas import json_patterns
from ottla.registry.schemas.budget import Budget, TooComplex
from ottla.registry.schemas.json_documents import Side
from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Dependency, SchemaProblem
from tests.registry.instances import RegistryThread, call, register, until

MAX_SPENT = 20_000
"""Steps for the bombs here that have a verdict at all: they are small, and so is what they cost."""


def doubled(levels: int, last: Any) -> dict[str, Any]:
    """Each definition is twice the next one: 2^levels."""
    definitions = {f"a{i}": {"allOf": [{"$ref": f"#/definitions/a{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/definitions/a0", "definitions": {**definitions, f"a{levels}": last}}


def nested(levels: int, last: Any) -> Any:
    """Without `$ref`: the text itself doubles."""
    for _ in range(levels):
        last = {"allOf": [last, last]}
    return last


def below(levels: int, last: Any) -> dict[str, Any]:
    """Twice as many checks with each level of the document."""
    definitions = {
        f"a{i}": {"properties": {"x": {"$ref": f"#/definitions/a{i + 1}"}}, "additionalProperties": False,
                  "patternProperties": {"^x": {"$ref": f"#/definitions/a{i + 1}"}}}
        for i in range(levels)
    }  # fmt: skip
    return {"$ref": "#/definitions/a0", "definitions": {**definitions, f"a{levels}": last}}


def verdict(kind: str, old: Any, new: Any) -> tuple[bool, int]:
    budget = Budget()
    texts = [each if isinstance(each, str) else json.dumps(each) for each in (old, new)]
    writer, reader = (parse_schema(kind, text, (), budget.part()) for text in texts)
    return not reader.incompatibilities(writer, budget.part()), budget.spent


@pytest.mark.parametrize("levels", [5, 10])
def test_doubling_definitions_cost_steps_by_their_number_not_by_two_to_it(levels: int) -> None:
    same, spent = verdict("JSON", doubled(levels, {"maxLength": 5}), doubled(levels, {"maxLength": 6}))
    assert same
    assert spent < MAX_SPENT
    same, spent = verdict("JSON", doubled(levels, {"maxLength": 5}), doubled(levels, {"maxLength": 4}))
    assert not same
    assert spent < MAX_SPENT


@pytest.mark.parametrize("bomb", [doubled(40, {"type": "string"}), below(40, {"type": "string"})])
def test_what_would_be_checked_2_to_the_40_times_is_refused(bomb: Any) -> None:
    with pytest.raises(TooComplex, match="too complex"):
        parse_schema("JSON", json.dumps(bomb))


def test_a_text_that_doubles_itself_is_judged_or_refused() -> None:
    old, new = nested(10, {"type": "string"}), nested(10, {"type": ["string", "null"]})
    assert verdict("JSON", old, new)[0]
    with pytest.raises(TooComplex):
        verdict("JSON", nested(16, {"type": "string"}), nested(16, {"type": "number"}))


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"anyOf": [{"type": "null"}, {"$ref": "#"}]}]
)
def test_a_circle_that_never_goes_into_the_document_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaProblem, match="leads back to itself"):
        parse_schema("JSON", json.dumps(schema))


def test_a_long_chain_of_references_and_a_recursive_schema_are_fine() -> None:
    definitions = {f"a{i}": {"properties": {"x": {"$ref": f"#/definitions/a{i + 1}"}}} for i in range(800)}
    parse_schema("JSON", json.dumps({"$ref": "#/definitions/a0", "definitions": {**definitions, "a800": {}}}))
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "type": "object"}
    assert verdict("JSON", tree, {**tree, "minProperties": 0})[0]


def union(prefix: str, branches: int) -> list[Any]:
    return [
        {"type": "record", "name": f"{prefix}{i}", "fields": [{"name": "a", "type": "int"}]} for i in range(branches)
    ]


def test_unions_of_a_thousand_branches_are_compared_by_name() -> None:
    for prefix, compatible in (("R", True), ("S", False)):
        reader, writer = (parse_schema("AVRO", json.dumps(union(each, 1000))) for each in (prefix, "R"))
        budget = Budget()
        assert (not reader.incompatibilities(writer, budget)) is compatible
        assert budget.spent < MAX_SPENT


def test_records_that_double_are_compared_once() -> None:
    def chain(last: str) -> str:
        inner: Any = last
        for i in range(30):
            record = {"type": "record", "name": f"R{i}", "fields": [{"name": "a", "type": inner}]}
            record["fields"] = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{i - 1}" if i else inner}]
            inner = record
        return json.dumps(inner)

    for last, compatible in (("int", True), ("string", False)):
        reader, writer = parse_schema("AVRO", chain(last)), parse_schema("AVRO", chain("int"))
        budget = Budget()
        assert (not reader.incompatibilities(writer, budget)) is compatible
        assert budget.spent < MAX_SPENT


LARGE: list[tuple[str, str]] = [
    ("AVRO", "[" * 5000),
    ("AVRO", '{"type":"array","items":' * 400 + '"int"' + "}" * 400),
    ("AVRO", '{"type":"record","name":"R","fields":[{"name":"f","type":' * 90 + '"int"' + "}]}" * 90),
    ("AVRO", json.dumps({"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": "int"} for i in range(12_000)]})),
    ("AVRO", json.dumps({"type": "fixed", "name": "F", "size": 1}).replace("1}", "9" * 1_000_000 + "}")),
    ("JSON", '{"allOf":[' * 400 + "{}" + "]}" * 400),
    ("JSON", json.dumps({"maximum": 1}).replace("1", "9" * 1_000_000)),
    ("JSON", '{"maximum": 1e999}'),
    ("JSON", '{"maximum": NaN}'),
    ("JSON", '{"title": "\\ud800"}'),
    ("JSON", json.dumps({"patternProperties": {f"^\\w{{50}}{i}$": {} for i in range(10_000)}})),
    ("JSON", json.dumps({"pattern": "(a{1000}){1000}"})),
    ("JSON", json.dumps({"$ref": "#/enum/0", "enum": [{"properties": 5}]})),
    ("JSON", json.dumps({"$ref": "#/title", "title": "x"})),
    ("PROTOBUF", "message M {" * 1000),
    ("PROTOBUF", "message M { int32 a = " + "1" * 1_000_000 + "x; }"),
    ("PROTOBUF", "message M { int32 a = 0x" + "F" * 500_000 + "; }"),
    ("PROTOBUF", "enum E { A = 99999999999999; }"),
    ("PROTOBUF", "message M { reserved 99999999999999999; }"),
    ("PROTOBUF", f"package {'a.' * 50_000}a; message M {{ }}"),
    ("PROTOBUF", "message M { " + ";" * 900_000),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LARGE)))
def test_deep_wide_and_huge_documents_are_a_problem_and_nothing_else(number: int) -> None:
    kind, text = LARGE[number]
    with pytest.raises(SchemaProblem) as caught:
        parse_schema(kind, text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_large_enum_is_looked_up_not_searched() -> None:
    values = [f"v{i}" for i in range(10_000)]
    compatible, _ = verdict("JSON", {"enum": values}, {"enum": [*values, "more"]})
    assert compatible
    with pytest.raises(TooComplex):
        verdict("JSON", {"enum": values}, {"anyOf": [{"enum": [*values, "more"]}]})


def test_many_oneofs_cost_no_square() -> None:
    fields = " ".join(f"oneof o{i} {{ int32 f{i} = {i + 1}; }}" for i in range(3000))
    text = f'syntax = "proto3"; message M {{ {fields} }}'
    assert verdict("PROTOBUF", text, text)[0]


def test_patterns_run_on_the_engine_that_checks_documents() -> None:
    """Python's own `re` needs longer than anybody waits for this one."""
    name = "a" * 40 + "!"
    budget = Budget()
    assert not json_patterns.Patterns(budget).matches("^(a+)+$", name)
    with pytest.raises(TooComplex, match="too many steps"):
        json_patterns.Patterns(budget).matches(r"^(a*)*\1$", name)
    old = {"patternProperties": {"^(a+)+$": {"type": "string"}}, "additionalProperties": False}
    new = {"properties": {name: {"type": "integer"}}, "additionalProperties": False}
    assert not verdict("JSON", old, new)[0]


def test_a_pattern_with_back_references_ends_at_validation_too() -> None:
    check = parse_schema("JSON", json.dumps({"pattern": r"^(a*)*\1$"})).validator()
    assert "backtracking" in check(json.dumps("a" * 40 + "b").encode())


def test_many_references_are_one_budget() -> None:
    text = json.dumps({"definitions": {f"d{i}": {"type": "string"} for i in range(2_000)}})
    with pytest.raises(TooComplex):
        parse_schema("JSON", "{}", [Dependency(f"r{i}", text) for i in range(500)])


BRANCHES = [{"minLength": i} for i in range(500)]
WIDE: dict[str, dict[str, Any]] = {
    "required": {"type": "object", "required": [f"n{i}" for i in range(2000)]},
    "items": {"type": "array", "items": [True] * 2000},
    "dependencies": {"type": "object", "dependencies": {f"n{i}": ["a"] for i in range(2000)}},
    "members": {"type": "object", "properties": {f"n{i}": {"type": "string"} for i in range(20)},
                "patternProperties": {f"^x{i}": {"type": "string"} for i in range(40)}},
}  # fmt: skip


@pytest.mark.parametrize("name", WIDE)
def test_what_is_walked_for_each_branch_is_counted_for_each_branch(name: str) -> None:
    """A list that a parent has is part of each of its branches: 500 times 2,000 names in a page of text."""
    old = {**WIDE[name], "anyOf": BRANCHES}
    with pytest.raises(TooComplex):
        verdict("JSON", old, {**old, "anyOf": [*BRANCHES, {"maxLength": 7}]})


def test_a_member_that_fits_at_once_costs_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    make = Side.__init__

    def counted(self: Side, *arguments: Any) -> None:
        nonlocal made
        made += 1
        make(self, *arguments)

    monkeypatch.setattr(Side, "__init__", counted)
    old = {"allOf": [{"type": "string"}, *({"maxLength": i} for i in range(500))]}
    compatible, spent = verdict("JSON", old, {"allOf": [{"type": ["string", "number"]} for _ in range(500)]})
    assert compatible
    assert made < 2 * spent


def test_long_ids_are_refused_before_anything_is_joined_with_them() -> None:
    """jsonschema-rs joins each `$ref` with the `$id`, and nothing else runs meanwhile: two minutes in 450 kB."""
    with pytest.raises(SchemaProblem, match="id of more than"):
        parse_schema("JSON", json.dumps({"$id": "http://x/" + "a/" * 2000, "allOf": [{"$ref": "b"}]}))
    nested_ids: Any = {"$ref": "b"}
    for _ in range(30):
        nested_ids = {"$id": "a" * 100 + "/", "not": nested_ids}
    with pytest.raises(SchemaProblem, match="id of more than"):
        parse_schema("JSON", json.dumps({"$id": "http://x/", "not": nested_ids}))


def test_names_of_protobuf_types_are_counted_by_their_length_and_depth() -> None:
    fields = "".join(f"X f{i} = {i + 1};" for i in range(100))
    text = f"message X {{ }} message {'M' * 20_000} {{ {'message a {' * 20} {fields} {'}' * 21}"
    with pytest.raises(TooComplex):
        parse_schema("PROTOBUF", text)


def avro_table(types: list[Any]) -> str:
    return json.dumps({"type": "record", "name": "T", "fields": [{"name": f"f{i}", "type": each}
                                                               for i, each in enumerate(types)]})  # fmt: skip


def test_one_avro_record_compared_with_many_is_counted_by_its_fields_and_its_aliases_once() -> None:
    fields = [{"name": f"g{i}", "type": "int", "default": 0} for i in range(1000)]
    empty = [{"type": "record", "name": f"n{i}.R", "fields": []} for i in range(500)]
    wide = avro_table([{"type": "record", "name": "R", "fields": fields}, *["R"] * 499])
    with pytest.raises(TooComplex):
        verdict("AVRO", avro_table(empty), wide)
    aliases = [f"A{i}" for i in range(5000)]
    other = [{"type": "record", "name": f"W{i}", "fields": []} for i in range(100)]
    named = avro_table([{"type": "record", "name": "R", "aliases": aliases, "fields": []}, *["R"] * 99])
    reader, writer = (parse_schema("AVRO", text) for text in (named, avro_table(other)))
    budget = Budget()
    assert reader.incompatibilities(writer, budget)
    assert len(aliases) < budget.spent < 2 * len(aliases)


# Over HTTP


@pytest.fixture
def subject() -> str:
    return f"bomb-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize(
    ("kind", "text"),
    [("JSON", json.dumps(doubled(40, {}))), ("JSON", '{"maximum": ' + "9" * 5000 + "}"), ("AVRO", "[" * 100_000),
     ("PROTOBUF", "message M {" * 1000)],
)  # fmt: skip
def test_a_bomb_is_answered_with_422(url: str, subject: str, kind: str, text: str) -> None:
    for path in (f"/subjects/{subject}/versions", f"/compatibility/subjects/{subject}/versions/latest"):
        status, answer = call(url, "POST", path, {"schema": text, "schemaType": kind})
        assert (status, answer["error_code"]) == (422, 42201)
    assert call(url, "GET", f"/subjects/{subject}/versions")[0] == 404


def test_others_are_answered_while_a_schema_is_being_checked(url: str, subject: str, monkeypatch: Any) -> None:
    """The thread is held by an event, so that nothing here depends on how long a check takes."""
    started, released = threading.Event(), threading.Event()
    run = SchemaThread._run

    def held(self: SchemaThread, job: Any, budget: Budget) -> Any:
        if "Held" in job.source.text:
            started.set()
            assert released.wait(60)
        return run(self, job, budget)

    monkeypatch.setattr(SchemaThread, "_run", held)
    with ThreadPoolExecutor(1) as others:
        slow = others.submit(register, url, subject, {"type": "fixed", "name": "Held", "size": 3})
        try:
            assert started.wait(60)
            assert call(url, "GET", "/subjects")[0] == 200
            assert call(url, "GET", "/config")[0] == 200
            assert call(url, "PUT", f"/config/{subject}", {"compatibility": "FULL"})[0] == 200, "the lock is free too"
        finally:
            released.set()
        assert slow.result(60)[0] == 200


def test_no_schema_is_read_on_the_loop(own_registry: RegistryThread, subject: str, monkeypatch: Any) -> None:
    from ottla.registry import schema_jobs

    threads: set[str] = set()
    parse = schema_jobs.parse_schema

    def noted(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name)
        return parse(*arguments)

    monkeypatch.setattr(schema_jobs, "parse_schema", noted)
    url = own_registry.url
    body = {"schema": '{"type":"fixed","name":"F","size":3}'}
    assert call(url, "POST", f"/subjects/{subject}/versions?normalize=true", body)[0] == 200
    assert call(url, "POST", f"/subjects/{subject}", body)[0] == 200
    assert call(url, "POST", f"/compatibility/subjects/{subject}/versions/latest", body)[1] == {"is_compatible": True}
    assert call(url, "GET", f"/subjects/{subject}/versions/1?format=serialized")[0] == 200
    assert threads
    assert all(name.startswith("schemas") for name in threads), threads


def test_a_transitive_level_compares_with_every_version_and_stops_at_its_limit(
    own_registry: RegistryThread, monkeypatch: Any
) -> None:
    from ottla.registry import schema_work

    url = own_registry.url
    assert call(url, "PUT", "/config", {"compatibility": "FULL_TRANSITIVE"})[0] == 200

    def record(count: int) -> Any:
        return {
            "type": "record",
            "name": "R",
            "fields": [{"name": f"f{i}", "type": "int", "default": 0} for i in range(count)],
        }

    for count in range(1, 61):
        assert register(url, "many", record(count))[0] == 200
    status, answer = register(url, "many", {**record(61), "fields": [{"name": "f0", "type": "string", "default": ""}]})
    assert status == 409
    assert "oldSchemaVersion: 60" in answer["message"]
    monkeypatch.setattr(schema_work, "MAX_REQUEST_STEPS", 10_000)
    status, answer = register(url, "many", record(62))
    assert (status, answer["error_code"]) == (422, 42201)
    assert "too complex" in answer["message"]


def test_more_requests_than_may_wait_are_told_to_come_again(own_registry: RegistryThread, monkeypatch: Any) -> None:
    from ottla.registry import schema_work

    monkeypatch.setattr(schema_work, "MAX_WAITING", 0)
    assert register(own_registry.url, "s", '"int"')[0] == 429
    monkeypatch.setattr(schema_work, "MAX_WAITING", 1)
    until(lambda: register(own_registry.url, "s", '"int"')[0] == 200)


def test_a_record_that_does_not_match_is_explained_in_bounded_work() -> None:
    """Each of these took seconds to hours for the text of the error, and held the loop of the broker meanwhile."""
    both = [{"$ref": "#"}, {"$ref": "#"}]
    tree = {"properties": {"a": {"anyOf": both}}, "not": {"required": ["z"]}}
    assert parse_schema("JSON", json.dumps(tree)).validator()(b'{"a":' * 60 + b'{"z":1}' + b"}" * 60) is not None
    texts = parse_schema("JSON", json.dumps({"items": {"type": "string"}})).validator()
    assert texts(b"[1,1]") == '1 is not of type "string" at /0'
    many = b"[" + b"1," * 200_000 + b"1]"
    assert texts(many) == '1 is not of type "string" at /0'
    wide = {"items": {"anyOf": [{"items": {"const": n}} for n in range(2, 500)]}}
    assert parse_schema("JSON", json.dumps(wide)).validator()(b"[" + many + b"]") == "it does not match its schema"


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "//["},
        {"$id": "http://a/", "properties": {"p": {"$id": "//[x"}}},
        {"$ref": "//[#/a"},
        {"allOf": [{"$ref": "http://[/x"}], "$id": "http://a/"},
    ],
)
def test_an_address_that_is_none_is_refused(url: str, subject: str, schema: Any) -> None:
    body = {"schema": json.dumps(schema), "schemaType": "JSON"}
    status, answer = call(url, "POST", f"/subjects/{subject}/versions", body)
    assert (status, answer["error_code"]) == (422, 42201)
