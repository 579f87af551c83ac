"""References: pinned when they are made, in the context of who makes them, never to what is deleted, in int32."""

from __future__ import annotations

import importlib
import json
import uuid
from pathlib import Path
from typing import Any

import google.type.date_pb2
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.registry.schemas.proto_google_type import GOOGLE_TYPES
from ottla.registry.schemas.protobuf_schema import ProtobufSchema
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
    assert register(url, f"{there}{inner}", record("Inner", a="int"))[0] == 200
    found = register(url, f"{there}{outer}", record("Outer", i="Inner"), references=[to(inner, "Inner", 1)])
    assert found[0] == 200, found
    nested = to(f"{there}{outer}", "Outer", 1)
    status, answer = register(url, user, record("User", o="Outer"), references=[nested])
    assert status == 200, answer
    # One of the same name in the default context is another schema, and nothing refers to it.
    assert register(url, inner, {"type": "enum", "name": "Inner", "symbols": ["OTHER"]})[0] == 200
    body = {"schema": json.dumps(record("User", o="Outer")), "references": [nested]}
    assert call(url, "POST", f"/compatibility/subjects/{user}/versions/latest", body)[1] == {"is_compatible": True}
    assert call(url, "DELETE", f"/subjects/{inner}")[0] == 200
    assert call(url, "POST", f"/subjects/{user}", body)[0] == 200


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


# Files that need no reference


@pytest.mark.parametrize("path", sorted(GOOGLE_TYPES))
def test_googles_common_types_are_known_and_as_google_has_them(path: str) -> None:
    """googleapis-common-protos, which other tests bring along, is the judge."""
    name = path.removeprefix("google/type/").removesuffix(".proto")
    expected = FileDescriptorProto()
    importlib.import_module(f"google.type.{name}_pb2").DESCRIPTOR.CopyToProto(expected)
    expected.ClearField("options")
    schema = ProtobufSchema(f'syntax = "proto3"; import "{path}"; message M {{ string s = 1; }}')
    found = FileDescriptorProto()
    schema.message_class("M").DESCRIPTOR.file.pool.FindFileByName(path).CopyToProto(found)
    for message in (*found.message_type, *(inner for each in found.message_type for inner in each.nested_type)):
        for field in message.field:
            field.ClearField("json_name")
    assert str(found) == str(expected)


def test_every_common_type_of_google_is_here() -> None:
    folder = Path(google.type.date_pb2.__file__).parent
    assert {f"google/type/{each.name}" for each in folder.glob("*.proto")} == set(GOOGLE_TYPES)


def test_a_schema_with_common_types_is_registered_without_references(url: str) -> None:
    text = 'syntax = "proto3"; import "google/type/money.proto"; import "confluent/type/variant.proto";'
    text += "message Order { google.type.Money price = 1; confluent.type.Variant more = 2; }"
    subject = f"types-{uuid.uuid4().hex[:12]}"
    status, answer = register(url, subject, text, "PROTOBUF")
    assert status == 200, answer
    changed = text.replace("google.type.Money", "google.type.Date").replace("money.proto", "date.proto")
    assert register(url, subject, changed, "PROTOBUF")[0] == 409
