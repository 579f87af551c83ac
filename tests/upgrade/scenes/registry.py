"""Schemas of the three languages, with references, settings, modes and deletions: the answers that must not change."""

from __future__ import annotations

import json
from typing import Any

from tests.registry.instances import RegistryThread, call, register

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "street", "type": "string"}]}
ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "shop.Address"}],
}  # fmt: skip
JSON_ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
PROTO_ORDER = 'syntax = "proto3";\npackage shop;\n\nmessage Order {\n  int64 id = 1;\n  repeated string lines = 2;\n}\n'


def record(servers: str) -> dict[str, Any]:
    with RegistryThread(servers) as registry:
        _fill(registry.url)
        return answers(registry.url)


def _fill(url: str) -> None:
    asked = [
        register(url, "address-value", ADDRESS),
        register(url, "order-value", ORDER, references=[{"name": "shop.Address", "subject": "address-value", "version": 1}]),
        register(url, "evolved", {"type": "record", "name": "E", "fields": []}),
        register(url, "evolved", {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int", "default": 1}]}),
        register(url, "json-value", JSON_ORDER, "JSON"),
        register(url, "proto-value", PROTO_ORDER, "PROTOBUF"),
        register(url, "soft", '"string"'),
        register(url, "hard", '"bytes"'),
        call(url, "DELETE", "/subjects/soft"),
        call(url, "DELETE", "/subjects/hard"),
        call(url, "DELETE", "/subjects/hard?permanent=true"),
        call(url, "PUT", "/config", {"compatibility": "FULL"}),
        call(url, "PUT", "/config/evolved", {"compatibility": "BACKWARD_TRANSITIVE"}),
        call(url, "PUT", "/mode/json-value", {"mode": "READONLY"}),
        register(url, ":.other:order-value", '"long"'),
    ]  # fmt: skip
    assert {status for status, _ in asked} == {200}, asked


def answers(url: str) -> dict[str, Any]:
    """Every path that a client reads from: [status, body]."""
    paths = ["/subjects", "/subjects?deleted=true", "/config", "/mode", "/contexts", "/schemas", "/schemas/types"]
    paths += [f"/schemas/ids/{n}" for n in range(1, 12)] + [f"/schemas/ids/{n}/versions" for n in range(1, 12)]
    _, subjects = call(url, "GET", "/subjects?deleted=true&subjectPrefix=:*:")
    for subject in subjects:
        paths += [f"/config/{subject}", f"/mode/{subject}", f"/subjects/{subject}/versions?deleted=true"]
        paths += [f"/subjects/{subject}/versions/{n}?deleted=true" for n in (1, 2)]
        paths.append(f"/subjects/{subject}/versions/1/referencedby")
    found = {path: list(call(url, "GET", path)) for path in paths}
    return json.loads(json.dumps(found))
