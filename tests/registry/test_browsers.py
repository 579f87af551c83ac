"""What a page of another site, or a name that was rebound to this address, can make a browser send to a registry."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from ottla.testing import Broker
from tests.registry.instances import RegistryThread

BODY = json.dumps({"schema": '"int"'})
JSON = {"Content-Type": "application/json"}


def send(url: str, method: str, path: str, headers: dict[str, str], body: str | None = BODY) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": urlsplit(url).netloc, **headers}.items():
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(None if body is None else body.encode())
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/subjects", {"Host": "rebound.example:8081"}, 421),
        ("POST", "/subjects/csrf/versions", {"Host": "rebound.example", **JSON}, 421),
        ("POST", "/subjects/csrf/versions", {"Origin": "https://evil.example", **JSON}, 403),
        ("POST", "/subjects/csrf/versions", {"Origin": "null", **JSON}, 403),
        ("POST", "/subjects/csrf/versions", {"Sec-Fetch-Site": "cross-site", **JSON}, 403),
        ("DELETE", "/subjects/csrf", {"Origin": "https://evil.example"}, 403),
        ("POST", "/subjects/csrf/versions", {"Content-Type": "text/plain"}, 415),
        ("POST", "/subjects/csrf/versions", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("POST", "/subjects/csrf/versions", {}, 415),
    ],
)
def test_refused_and_nothing_registered(
    registry: RegistryThread, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    found, text = send(registry.url, method, path, headers)
    assert (found, json.loads(text)["error_code"]) == (status, status), text
    assert "csrf" not in json.loads(send(registry.url, "GET", "/subjects", {}, None)[1])


def test_names_that_were_allowed_and_clients_go_on(broker: Broker) -> None:
    settings = {"topic": "_schemas_hosts", "allowed_hosts": ("registry.example", ".svc.local")}
    with RegistryThread(broker.bootstrap_servers, **settings) as registry:
        for host in ("registry.example", "a.b.svc.local:80", "localhost", "10.9.8.7:8081"):
            assert send(registry.url, "GET", "/subjects", {"Host": host}, None)[0] == 200
        same = {"Origin": registry.url, "Sec-Fetch-Site": "same-origin", **JSON}
        assert send(registry.url, "POST", "/subjects/own/versions", same)[0] == 200
        assert send(registry.url, "GET", "/subjects", {"Origin": "https://evil.example"}, None)[0] == 200
        client = SchemaRegistryClient({"url": registry.url})
        assert client.register_schema("confluent", Schema('"long"', "AVRO")) > 0
        assert set(client.get_subjects()) == {"own", "confluent"}
        assert client.delete_subject("confluent") == [1]
