"""Avro, JSON Schema and Protobuf, both ways, through a registry: what is typed as JSON is framed, and read back as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from ottla.cli.commands import ottla
from ottla.client.schema_registry import RegistryClient
from ottla.testing import Broker
from tests.registry.instances import RegistryThread
from tests.support.ports import free_port

SCHEMAS = {
    "AVRO": '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}',
    "JSON": '{"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}',
    "PROTOBUF": 'syntax = "proto3"; message R { int32 id = 1; string name = 2; }',
}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, str]]:
    with Broker() as broker, RegistryThread(broker.bootstrap_servers, topic="_schemas_cli") as registry:
        yield broker.bootstrap_servers, registry.url


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_both_ways(running: tuple[str, str], kind: str) -> None:
    server, url = running
    topic = f"typed-{kind.lower()}"
    RegistryClient(url).call(
        "POST", "subjects", f"{topic}-value", "versions", body={"schema": SCHEMAS[kind], "schemaType": kind}
    )
    options = ["-b", server, "--registry", url]
    rows = [{"id": n, "name": f"n{n}"} for n in range(1, 4)]
    call("topic", "create", topic, "--partitions", "1", *options)
    call("produce", topic, "--value-as", "schema", *options, stdin="".join(json.dumps(row) + "\n" for row in rows))
    read = call("consume", topic, "-e", "-o", "json", *options).splitlines()
    assert [json.loads(line)["value"] for line in read] == rows
    raw = call("consume", topic, "-e", "-n", "1", "--value-as", "hex", "-f", "%v", "-b", server)
    assert raw.startswith("00 00 00 00")
    queried = call("sql", f'select json from "{topic}" order by "offset"', "-o", "json", *options).splitlines()
    assert [json.loads(json.loads(line)["json"])["name"] for line in queried] == ["n1", "n2", "n3"]
    found = call("consume", topic, "-e", "--filter", "value.id == 2", "-f", "%v\\n", *options)
    assert json.loads(found) == rows[1]
    assert "does not fit schema" in call("produce", topic, '{"id": "x"}', "--value-as", "schema", *options, code=1)


def call(*words: str, stdin: str = "", code: int = 0) -> str:
    done = CliRunner().invoke(ottla, list(words), input=stdin)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.stdout if code == 0 else done.output


def test_the_registry_of_up_is_used_without_an_option() -> None:
    """As `ottla up` sets it: the node has the address of the registry on the same machine."""
    port = free_port()
    with (
        Broker(properties={"ottla.schema.registry.url": f"http://127.0.0.1:{port}"}) as broker,
        RegistryThread(broker.bootstrap_servers, port, topic="_schemas_up") as registry,
    ):
        body = {"schema": SCHEMAS["AVRO"], "schemaType": "AVRO"}
        RegistryClient(registry.url).call("POST", "subjects", "near-value", "versions", body=body)
        node = ["-b", broker.bootstrap_servers]
        call("topic", "create", "near", "--partitions", "1", *node)
        call("produce", "near", '{"id": 7, "name": "n"}', "--value-as", "schema", *node, "--registry", registry.url)
        assert json.loads(call("consume", "near", "-e", "-f", "%v", *node)) == {"id": 7, "name": "n"}
        call("produce", "near", '{"id": 8, "name": "m"}', "--value-as", "schema", *node)
        query = "select json->>'name' as name, value from near order by name"
        rows = [json.loads(line) for line in call("sql", query, "-o", "json", *node).splitlines()]
        assert [row["name"] for row in rows] == ["m", "n"]
        assert json.loads(rows[0]["value"]) == {"id": 8, "name": "m"}


def test_without_a_registry_the_hint_is_an_option_of_this_verb() -> None:
    with Broker() as broker:
        node = ["-b", broker.bootstrap_servers]
        call("topic", "create", "t", "--partitions", "1", *node)
        for words in (["produce", "t", "1", "--value-as", "schema"], ["consume", "t", "-e", "--value-as", "registry"]):
            assert "give --registry URL, or set OTTLA_REGISTRY" in call(*words, *node, code=1)


def test_json_has_every_value_of_a_repeated_header() -> None:
    with Broker() as broker:
        node = ["-b", broker.bootstrap_servers]
        call("topic", "create", "h", "--partitions", "1", *node)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("h", b"x", headers=[("a", b"1"), ("b", b"2"), ("a", None)])
        assert producer.flush(30) == 0
        row = json.loads(call("consume", "h", "-e", "-o", "json", *node))
        assert row["headers"] == {"a": ["1", None], "b": "2"}
