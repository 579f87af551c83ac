"""References: pinned when they are made, in the context of who makes them, never to what is deleted, in int32."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.registry.instances import RegistryThread, call, register

MAX_INT = 2**31 - 1


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": k, "type": v} for k, v in fields.items()]}


def to(subject: str, name: str, version: int) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": version}


@pytest.fixture
def base(url: str) -> str:
    """A subject with one version of a record called Base."""
    subject = f"base-{uuid.uuid4().hex[:12]}"
    assert register(url, subject, record("Base", a="int"))[0] == 200
    return subject


def test_the_latest_version_is_pinned_at_registration(url: str, base: str) -> None:
    subject = f"{base}-user"
    assert register(url, subject, record("User", b="Base"), references=[to(base, "Base", -1)])[0] == 200
    newer = {**record("Base", a="int"), "doc": "newer"}
    assert register(url, base, newer)[1]["version"] == 2
    stored = call(url, "GET", f"/subjects/{subject}/versions/1")[1]
    assert stored["references"] == [to(base, "Base", 1)]
    assert call(url, "GET", f"/subjects/{base}/versions/1/referencedby")[1] == [stored["id"]]
    assert call(url, "DELETE", f"/subjects/{base}/versions/1")[1]["error_code"] == 42206, "it is referred to"
    # With -1 the schema of today is another one: it refers to the newer version.
    body = {"schema": json.dumps(record("User", b="Base")), "references": [to(base, "Base", 1)]}
    assert call(url, "POST", f"/subjects/{subject}", body)[1]["version"] == 1
    again = register(url, subject, record("User", b="Base"), references=[to(base, "Base", -1)])[1]
    assert again["version"] == 2
    assert call(url, "GET", f"/subjects/{subject}/versions/2")[1]["references"] == [to(base, "Base", 2)]


def test_nested_references_belong_to_the_context_of_who_makes_them(url: str) -> None:
    inner, outer, user = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("inner", "outer", "user"))
    there = f":.there-{uuid.uuid4().hex[:8]}:"
    # A decoy of the same name in the default context: it has another type.
    assert register(url, inner, {"type": "enum", "name": "Inner", "symbols": ["WRONG"]})[0] == 200
    assert register(url, f"{there}{inner}", record("Inner", a="int"))[0] == 200
    found = register(url, f"{there}{outer}", record("Outer", i="Inner"), references=[to(inner, "Inner", 1)])
    assert found[0] == 200, found
    nested = to(f"{there}{outer}", "Outer", 1)
    assert register(url, user, record("User", o="Outer"), references=[nested])[0] == 200
    # An int instead of the record: the decoy would have been compatible with an enum only.
    changed = {**record("Inner", a="int"), "fields": [{"name": "a", "type": "string"}]}
    assert register(url, f"{there}{inner}", changed)[0] == 409
    only_here = {"schema": json.dumps(record("User", o="Outer")), "references": [nested]}
    assert call(url, "POST", f"/subjects/{user}", only_here)[0] == 200
    assert call(url, "DELETE", f"/subjects/{inner}")[0] == 200, "nothing refers to the one of the default context"
    assert call(url, "POST", f"/compatibility/subjects/{user}/versions/latest", only_here)[1] == {"is_compatible": True}


@pytest.mark.parametrize("version", [1, -1])
def test_a_soft_deleted_version_cannot_be_referred_to(url: str, base: str, version: int) -> None:
    assert call(url, "DELETE", f"/subjects/{base}/versions/1")[0] == 200
    status, answer = register(url, f"{base}-user", record("User", b="Base"), references=[to(base, "Base", version)])
    assert (status, answer["error_code"]) == (422, 42201)
    assert f'No schema reference found for subject "{base}" and version {version}' in answer["message"]


def test_what_refers_to_a_deleted_version_can_still_be_read(url: str, base: str) -> None:
    subject, user = f"{base}-user", record("User", b="Base")
    assert register(url, subject, user, references=[to(base, "Base", 1)])[0] == 200
    assert call(url, "DELETE", f"/subjects/{subject}")[0] == 200
    assert call(url, "DELETE", f"/subjects/{base}")[0] == 200
    assert call(url, "GET", f"/subjects/{subject}/versions/1?deleted=true&format=serialized")[0] == 200
    body = {"schema": json.dumps(user), "references": [to(base, "Base", 1)]}
    assert call(url, "POST", f"/subjects/{subject}?deleted=true", body)[0] == 200


@pytest.mark.parametrize("version", [0, -2, MAX_INT + 1, 2**40, 10**30])
def test_a_version_that_is_none_is_refused(url: str, base: str, version: int) -> None:
    body = {"schema": json.dumps(record("U", b="Base")), "references": [to(base, "Base", version)]}
    status, answer = call(url, "POST", f"/subjects/{base}-user/versions", body)
    assert status == 422, answer
    assert call(url, "GET", f"/subjects/{base}-user/versions")[0] == 404


def test_more_references_than_allowed_are_refused(url: str, base: str) -> None:
    many = [to(base, f"Base{i}", 1) for i in range(501)]
    status, answer = register(url, f"{base}-user", '"int"', references=many)
    assert (status, answer["error_code"]) == (422, 42201)
    assert "more than 500 references" in answer["message"]


def test_a_fan_of_references_is_looked_up_within_a_limit(own_registry: RegistryThread) -> None:
    """Each level refers 400 times to the one below, under 400 names: 400^n look-ups without a limit."""
    url = own_registry.url
    assert register(url, "level0", '"int"')[0] == 200
    for level in range(1, 4):
        many = [to(f"level{level - 1}", f"l{level}n{i}", 1) for i in range(400)]
        status, answer = register(url, f"level{level}", '"long"', references=many)
        if status != 200:
            assert (status, answer["error_code"]) == (422, 42201)
            return
    pytest.fail("nothing was refused")


def test_ids_and_versions_above_int32_are_refused_in_import_mode(own_registry: RegistryThread) -> None:
    url = own_registry.url
    assert call(url, "PUT", "/mode", {"mode": "IMPORT"})[0] == 200
    for body in ({"id": MAX_INT + 1}, {"id": 1, "version": MAX_INT + 1}, {"id": 2**63}, {"id": -2}):
        status, answer = call(url, "POST", "/subjects/s/versions", {"schema": '"int"', **body})
        assert status == 422, (body, answer)
    assert call(url, "GET", "/subjects")[1] == []
    assert call(url, "POST", "/subjects/s/versions", {"schema": '"int"', "id": MAX_INT, "version": MAX_INT})[0] == 200
    assert call(url, "PUT", "/mode", {"mode": "READWRITE"})[0] == 200
    status, answer = register(url, "t", '"long"')
    assert (status, answer["error_code"]) == (422, 42205), "the next id would not fit into four bytes"
    assert "larger than 2^31-1" in answer["message"]
    assert register(url, "s", '"string"')[0] in {409, 422}
