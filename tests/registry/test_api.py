"""The REST API, call by call: answers, codes and messages as Confluent's."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import pytest

from tests.registry.instances import RegistryThread, call, register

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}


def record(*fields: str, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f, "type": "int", "default": 0} for f in fields]}


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:12]}"


def schema_body(schema: Any, schema_type: str = "AVRO", **more: Any) -> dict[str, Any]:
    return {"schema": schema if isinstance(schema, str) else json.dumps(schema), "schemaType": schema_type, **more}


def test_register_look_up_and_list(url: str, subject: str) -> None:
    name = subject.replace("-", "_")  # of this test alone: a schema has one id under all subjects
    mine = record("a", name=name)
    status, first = register(url, subject, mine)
    assert (status, first["version"]) == (200, 1)
    assert register(url, subject, mine)[1] == first
    second = register(url, subject, record("a", "b", name=name))[1]
    assert second["version"] == 2
    assert second["id"] > first["id"]
    assert call(url, "GET", f"/subjects/{subject}/versions") == (200, [1, 2])
    found = call(url, "POST", f"/subjects/{subject}", schema_body(mine))[1]
    assert (found["id"], found["version"], found["subject"]) == (first["id"], 1, subject)
    assert call(url, "GET", f"/schemas/ids/{first['id']}")[1]["schema"] == json.dumps(mine, separators=(",", ":"))
    assert call(url, "GET", f"/schemas/ids/{first['id']}/schema")[1] == mine
    assert call(url, "GET", f"/schemas/ids/{first['id']}/subjects") == (200, [subject])
    assert call(url, "GET", f"/schemas/ids/{first['id']}/versions") == (200, [{"subject": subject, "version": 1}])
    assert call(url, "GET", f"/schemas/guids/{first['guid']}")[1]["schema"] == json.dumps(mine, separators=(",", ":"))
    assert call(url, "GET", f"/schemas/guids/{first['guid']}/ids")[1] == [{"context": ".", "id": first["id"]}]
    assert call(url, "GET", f"/subjects/{subject}/versions/latest")[1]["version"] == 2
    assert call(url, "GET", f"/subjects/{subject}/versions/1/schema")[1] == mine
    assert subject in call(url, "GET", "/subjects")[1]
    assert call(url, "GET", f"/subjects?subjectPrefix={subject}")[1] == [subject]


def test_one_schema_has_one_id_under_all_subjects(url: str, subject: str) -> None:
    one = register(url, subject, record(subject.replace("-", "_")))[1]
    other = register(url, f"{subject}-2", record(subject.replace("-", "_")))[1]
    assert other["id"] == one["id"]
    assert call(url, "GET", f"/schemas/ids/{one['id']}/subjects")[1] == [subject, f"{subject}-2"]
    assert call(url, "GET", f"/schemas/ids/{one['id']}/subjects?offset=1&limit=5")[1] == [f"{subject}-2"]


def test_soft_and_permanent_delete(url: str, subject: str) -> None:
    path = f"/subjects/{subject}"
    for count in (1, 2, 3):
        register(url, subject, record(*"abc"[:count], name=subject.replace("-", "_")))
    largest = register(url, subject, record(*"abcd", name=subject.replace("-", "_")))[1]["id"]
    assert call(url, "DELETE", f"{path}/versions/2") == (200, 2)
    assert call(url, "DELETE", f"{path}/versions/2")[1]["error_code"] == 40406
    assert call(url, "GET", f"{path}/versions")[1] == [1, 3, 4]
    assert call(url, "GET", f"{path}/versions?deleted=True")[1] == [1, 2, 3, 4]
    assert call(url, "GET", f"{path}/versions?deletedOnly=true")[1] == [2]
    assert call(url, "GET", f"{path}/versions/2")[1]["error_code"] == 40402
    assert call(url, "GET", f"{path}/versions/2?deleted=true")[1]["deleted"] is True
    assert call(url, "DELETE", f"{path}/versions/1?permanent=true")[1]["error_code"] == 40407
    assert call(url, "DELETE", f"{path}?permanent=true")[1]["error_code"] == 40405
    assert call(url, "DELETE", path) == (200, [1, 3, 4])
    assert call(url, "DELETE", path)[1]["error_code"] == 40404
    assert call(url, "GET", f"{path}/versions")[1]["error_code"] == 40401
    assert subject in call(url, "GET", "/subjects?deleted=true")[1]
    assert call(url, "DELETE", f"{path}?permanent=TRUE") == (200, [1, 2, 3, 4])
    assert call(url, "GET", f"/schemas/ids/{largest}")[1]["error_code"] == 40403
    again = register(url, subject, record("z", name=subject.replace("-", "_")))[1]
    assert again["version"] == 1
    assert again["id"] > largest, "an id was given twice"


def test_a_deleted_schema_comes_back_as_a_new_version_with_its_id(url: str, subject: str) -> None:
    first = register(url, subject, RECORD)[1]
    call(url, "DELETE", f"/subjects/{subject}")
    second = register(url, subject, RECORD)[1]
    assert (second["id"], second["version"]) == (first["id"], 2)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "words"),
    [
        ("GET", "/subjects/nope/versions", None, 404, 40401, "Subject 'nope' not found."),
        ("GET", "/subjects/nope/versions/1", None, 404, 40401, "Subject 'nope' not found."),
        ("GET", "/schemas/ids/99999999", None, 404, 40403, "Schema 99999999 not found"),
        ("GET", "/schemas/guids/zz", None, 404, 40403, "Schema zz not found"),
        ("GET", "/subjects/nope/versions/0", None, 422, 42202, "The specified version '0' is not a valid version id."),
        ("GET", "/subjects/nope/versions/x", None, 422, 42202, "The specified version 'x'"),
        ("GET", "/config/nope", None, 404, 40408, "does not have subject-level compatibility configured"),
        ("GET", "/mode/nope", None, 404, 40409, "does not have subject-level mode configured"),
        ("PUT", "/config/nope", {"compatibility": "SIDEWAYS"}, 422, 42203, "Invalid compatibility level."),
        ("PUT", "/mode/nope", {"mode": "SLEEPY"}, 422, 42204, "Invalid mode."),
        ("DELETE", "/subjects/nope", None, 404, 40401, "Subject 'nope' not found."),
        ("DELETE", "/config/nope", None, 404, 40401, "Subject 'nope' not found."),
        ("POST", "/subjects/nope", {"schema": '"int"'}, 404, 40401, "Subject 'nope' not found."),
        ("POST", "/subjects/nope/versions", {"schema": ""}, 422, 42201, "Empty schema"),
        ("POST", "/subjects/nope/versions", {}, 422, 42201, "Empty schema"),
        ("POST", "/subjects/nope/versions", {"schema": '{"type":"recor'}, 422, 42201, "not JSON"),
        ("POST", "/subjects/nope/versions", {"schema": '{"type":"what"}'}, 422, 42201, "Invalid schema of type AVRO"),
        ("POST", "/subjects/nope/versions", {"schema": "{}", "schemaType": "XML"}, 422, 42201, "Invalid schema type XML"),
        ("POST", "/subjects/nope/versions", {"schema": '{"type":"strin"}', "schemaType": "JSON"}, 422, 42201, "JSON"),
        ("POST", "/subjects/nope/versions", {"schema": "message A {", "schemaType": "PROTOBUF"}, 422, 42201, "line 1"),
        ("POST", "/subjects/nope/versions", {"schema": "!!", "schemaType": "PROTOBUF"}, 422, 42201, "neither"),
        ("POST", "/subjects/nope/versions", b"{", 400, 400, "not JSON"),
        ("POST", "/subjects/nope/versions", {"schema": 5}, 422, 422, "Invalid request body"),
        ("PATCH", "/subjects", None, 405, 405, "HTTP 405"),
        ("GET", "/nothing/here", None, 404, 404, "HTTP 404"),
        ("GET", "/associations/resources/x", None, 404, 40410, "Association for 'x' not found."),
        ("POST", "/compatibility/subjects/nope/versions/3", {"schema": '"int"'}, 404, 40401, "Subject 'nope' not found."),
    ],
)  # fmt: skip
def test_errors(url: str, method: str, path: str, body: Any, status: int, code: int, words: str) -> None:
    found, answer = call(url, method, path, body)
    assert (found, answer["error_code"]) == (status, code)
    assert words in answer["message"]
    assert "\n" not in answer["message"]


def test_bad_references(url: str, subject: str) -> None:
    reference = {"name": "X", "subject": subject, "version": 1}
    status, answer = register(url, subject, '"X"', references=[reference])
    assert (status, answer["error_code"]) == (422, 42201)
    assert f'No schema reference found for subject "{subject}" and version 1' in answer["message"]


def test_a_circle_of_references_is_refused(own_registry: RegistryThread) -> None:
    url = own_registry.url
    assert call(url, "PUT", "/mode", {"mode": "IMPORT"})[0] == 200
    body = {"schema": '"int"', "id": 1, "version": 1}
    assert call(url, "POST", "/subjects/a/versions", body)[0] == 200
    to_a = {"name": "A", "subject": "a", "version": 1}
    assert (
        call(url, "POST", "/subjects/b/versions", {"schema": '"long"', "id": 2, "version": 1, "references": [to_a]})[0]
        == 200
    )
    # b refers to a; now a is imported again, referring to b.
    to_b = {"name": "B", "subject": "b", "version": 1}
    status, _ = call(
        url, "POST", "/subjects/a/versions", {"schema": '"float"', "id": 3, "version": 1, "references": [to_b]}
    )
    assert status == 200
    status, answer = call(url, "POST", "/subjects/c/versions", {"schema": '"double"', "id": 4, "references": [to_a]})
    assert (status, answer["error_code"]) == (422, 42201)
    assert "circle" in answer["message"]


def test_a_schema_of_ten_megabytes_is_refused(url: str, subject: str) -> None:
    status, answer = register(url, subject, {**RECORD, "doc": "x" * 10_000_000})
    assert (status, answer["error_code"]) == (422, 42209)
    assert "too large" in answer["message"]
    status, answer = register(url, subject, {**RECORD, "doc": "x" * 17_000_000})
    assert status == 413
    assert call(url, "GET", f"/subjects/{subject}/versions")[0] == 404


def test_a_wrong_content_type_is_refused(url: str, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    status, answer = call(url, "POST", path, schema_body(RECORD), headers={"Content-Type": "text/plain"})
    assert (status, answer["error_code"]) == (415, 415)
    assert "text/plain" in answer["message"]


def test_references_guard_what_they_point_to(url: str, subject: str) -> None:
    inner = {"type": "record", "name": "Inner", "namespace": "n", "fields": [{"name": "x", "type": "string"}]}
    outer = {"type": "record", "name": "Outer", "namespace": "n", "fields": [{"name": "i", "type": "n.Inner"}]}
    register(url, f"{subject}-inner", inner)
    references = [{"name": "n.Inner", "subject": f"{subject}-inner", "version": 1}]
    found = register(url, subject, outer, references=references)[1]
    assert call(url, "GET", f"/schemas/ids/{found['id']}")[1]["references"] == references
    assert call(url, "GET", f"/subjects/{subject}-inner/versions/1/referencedby") == (200, [found["id"]])
    status, answer = call(url, "DELETE", f"/subjects/{subject}-inner")
    assert (status, answer["error_code"]) == (422, 42206)
    assert call(url, "DELETE", f"/subjects/{subject}")[0] == 200
    assert call(url, "DELETE", f"/subjects/{subject}-inner")[0] == 200


def test_compatibility_is_checked_and_explained(url: str, subject: str) -> None:
    register(url, subject, RECORD)
    changed = {**RECORD, "fields": [{"name": "a", "type": "string"}]}
    status, answer = register(url, subject, changed)
    assert (status, answer["error_code"]) == (409, 409)
    assert f'incompatible with an earlier schema for subject "{subject}"' in answer["message"]
    path = f"/compatibility/subjects/{subject}/versions"
    assert call(url, "POST", f"{path}/latest", schema_body(changed))[1] == {"is_compatible": False}
    verbose = call(url, "POST", f"{path}/1?verbose=true", schema_body(changed))[1]
    assert any("/fields/0/type" in message for message in verbose["messages"])
    assert call(url, "POST", f"{path}?verbose=true", schema_body(record("a", "b")))[1] == {
        "is_compatible": True, "messages": [],
    }  # fmt: skip
    assert call(url, "PUT", f"/config/{subject}", {"compatibility": "none"}) == (200, {"compatibility": "NONE"})
    assert register(url, subject, changed)[0] == 200
    assert call(url, "GET", f"/config/{subject}") == (200, {"compatibilityLevel": "NONE"})
    assert call(url, "DELETE", f"/config/{subject}") == (200, {"compatibilityLevel": "NONE"})
    assert call(url, "GET", f"/config/{subject}?defaultToGlobal=TRUE") == (200, {"compatibilityLevel": "BACKWARD"})
    assert call(url, "POST", "/compatibility/subjects/never-seen/versions/latest", schema_body(RECORD))[1] == {
        "is_compatible": True
    }


def test_transitive_levels_look_at_all_versions(url: str, subject: str) -> None:
    call(url, "PUT", f"/config/{subject}", {"compatibility": "NONE"})
    register(url, subject, {**RECORD, "fields": [{"name": "a", "type": "string"}]})
    register(url, subject, record("b"))
    for level, status in (("BACKWARD", 200), ("BACKWARD_TRANSITIVE", 409)):
        call(url, "PUT", f"/config/{subject}", {"compatibility": level})
        field = {"name": "a" if status == 409 else "c", "type": "int", "default": 1}
        assert register(url, subject, {**RECORD, "fields": [field]})[0] == status, level


def test_modes(own_registry: RegistryThread) -> None:
    url = own_registry.url
    assert call(url, "GET", "/mode") == (200, {"mode": "READWRITE"})
    register(url, "s", RECORD)
    assert call(url, "PUT", "/mode/s", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert register(url, "s", record("a", "b"))[1]["error_code"] == 42205
    assert call(url, "DELETE", "/subjects/s")[1]["error_code"] == 42205
    assert register(url, "s", RECORD)[0] == 200, "what is there already may be asked for"
    assert call(url, "DELETE", "/mode/s") == (200, {"mode": "READONLY"})
    assert register(url, "s", record("a", "b"))[0] == 200
    assert call(url, "PUT", "/mode/s", {"mode": "IMPORT"})[1]["error_code"] == 42205
    assert call(url, "POST", "/subjects/s/versions", {"schema": '"int"', "id": 77})[1]["error_code"] == 42205
    assert call(url, "PUT", "/mode/t", {"mode": "IMPORT"})[0] == 200
    imported = {"schema": '"int"', "id": 77, "version": 5}
    assert call(url, "POST", "/subjects/t/versions", imported)[1]["id"] == 77
    assert call(url, "GET", "/subjects/t/versions") == (200, [5])
    assert call(url, "POST", "/subjects/t/versions", {"schema": '"long"', "id": 77})[1]["error_code"] == 42205
    assert call(url, "POST", "/subjects/t/versions", {"schema": '"int"', "id": 78})[1]["error_code"] == 42207
    assert register(url, "u", '"string"')[1]["id"] == 78
    assert call(url, "PUT", "/mode", {"mode": "READONLY_OVERRIDE"})[0] == 200
    assert register(url, "u", '"long"')[1]["error_code"] == 42205


def test_contexts(own_registry: RegistryThread) -> None:
    url = own_registry.url
    assert register(url, "s", RECORD)[1]["id"] == 1
    assert register(url, ":.staging:s", record("x"))[1]["id"] == 1, "each context counts its own ids"
    assert call(url, "GET", "/contexts") == (200, [".", ".staging"])
    assert call(url, "GET", "/subjects") == (200, ["s"])
    assert call(url, "GET", "/subjects?subjectPrefix=:*:") == (200, [":.staging:s", "s"])
    assert call(url, "GET", "/contexts/.staging/subjects") == (200, [":.staging:s"])
    assert call(url, "GET", "/contexts/.staging/subjects/s/versions") == (200, [1])
    assert call(url, "GET", "/contexts/:.staging:/schemas/ids/1")[1]["schema"] == json.dumps(
        record("x"), separators=(",", ":")
    )
    assert call(url, "GET", "/schemas/ids/1?subject=:.staging:s")[1]["schema"] == json.dumps(
        record("x"), separators=(",", ":")
    )
    assert call(url, "GET", "/schemas/ids/1")[1]["schema"] == json.dumps(RECORD, separators=(",", ":"))
    assert call(url, "PUT", "/config/:.staging:", {"compatibility": "NONE"})[0] == 200
    assert register(url, ":.staging:s", '"int"')[0] == 200
    assert register(url, "s", '"int"')[0] == 409


def test_metadata_and_rules_are_kept(url: str, subject: str) -> None:
    metadata = {"properties": {"owner": "ann"}, "tags": {"R.a": ["PII"]}}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}]}
    found = register(url, subject, RECORD, metadata=metadata, ruleSet=rules)[1]
    answer = call(url, "GET", f"/subjects/{subject}/versions/1")[1]
    assert (answer["metadata"], answer["ruleSet"]) == (metadata, rules)
    assert call(url, "GET", f"/schemas/ids/{found['id']}")[1]["ruleSet"] == rules
    plain = register(url, f"{subject}-plain", RECORD)[1]
    assert plain["id"] != found["id"], "with other metadata it is another schema"
    assert call(url, "GET", f"/subjects/{subject}/metadata?key=owner&value=ann")[1]["version"] == 1
    assert call(url, "GET", f"/subjects/{subject}/metadata?key=owner&value=bob")[0] == 404


def test_normalize_makes_spellings_one(url: str, subject: str) -> None:
    one = '{"type":"object","properties":{"a":{"type":"string"}},"title":"t"}'
    other = '{"title":"t","properties":{"a":{"type":"string"}},"type":"object"}'
    first = call(url, "POST", f"/subjects/{subject}/versions?normalize=true", schema_body(one, "JSON"))[1]
    assert call(url, "POST", f"/subjects/{subject}/versions?normalize=True", schema_body(other, "JSON"))[1] == first
    assert call(url, "POST", f"/subjects/{subject}", schema_body(other, "JSON"))[1]["error_code"] == 40403
    assert call(url, "POST", f"/subjects/{subject}?normalize=true", schema_body(other, "JSON"))[1]["version"] == 1


def test_protobuf_descriptors_and_text_are_one(url: str, subject: str) -> None:
    text = 'syntax = "proto3";\npackage p;\nmessage M { string a = 1; M next = 2; map<string, int32> m = 3; }'
    found = register(url, subject, text, "PROTOBUF")[1]
    serialized = call(url, "GET", f"/schemas/ids/{found['id']}?format=serialized")[1]["schema"]
    assert b"next" in base64.b64decode(serialized)
    plain = call(url, "GET", f"/schemas/ids/{found['id']}")[1]
    assert plain["schemaType"] == "PROTOBUF"
    assert "map<string, int32> m = 3;" in plain["schema"]
    path = f"/subjects/{subject}?normalize=true"
    call(url, "POST", f"/subjects/{subject}-n/versions?normalize=true", schema_body(text, "PROTOBUF"))
    again = call(url, "POST", f"/subjects/{subject}-n?normalize=true", schema_body(serialized, "PROTOBUF"))
    assert again[1]["version"] == 1, path


def test_paging_and_what_it_says_of_itself(url: str, subject: str) -> None:
    for index in range(5):
        register(url, f"{subject}-{index}", RECORD)
    page = call(url, "GET", f"/subjects?subjectPrefix={subject}&offset=1&limit=2")[1]
    assert page == [f"{subject}-1", f"{subject}-2"]
    listed = call(url, "GET", f"/schemas?subjectPrefix={subject}&limit=3&latestOnly=true")[1]
    assert [each["subject"] for each in listed] == [f"{subject}-{index}" for index in range(3)]
    assert call(url, "GET", "/") == (200, {})
    assert call(url, "GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    assert call(url, "GET", "/v1/metadata/id")[1]["scope"]["clusters"]["schema-registry-cluster"] == "schema-registry"
    assert "version" in call(url, "GET", "/v1/metadata/version")[1]


def test_a_subject_may_hold_a_slash_and_a_percent(url: str, subject: str) -> None:
    name = f"{subject}/a%b c"
    assert register(url, name, RECORD)[0] == 200
    assert name in call(url, "GET", "/subjects")[1]


def test_settings_and_metadata_of_another_shape_are_no_server_error(url: str, subject: str) -> None:
    assert call(url, "PUT", f"/config/{subject}", {"compatibilityGroup": ["a"], "compatibility": "NONE"})[0] == 200
    for field in ("a", "b"):
        schema = {"type": "record", "name": "R", "fields": [{"name": field, "type": "int"}]}
        assert register(url, subject, schema, metadata={"properties": "x"})[0] == 200
    assert call(url, "GET", f"/subjects/{subject}/metadata?key=a&value=b")[0] == 404
