"""confluent-kafka's own serializers and deserializers, through a real log and a real registry."""

from __future__ import annotations

import importlib.util
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.testing import Broker
from tests.registry.instances import RegistryThread, call
from tests.support.apache_kafka import ApacheKafka

PERSON = {
    "type": "record", "name": "Person", "namespace": "n",
    "fields": [{"name": "name", "type": "string"}, {"name": "home", "type": "n.Address"}],
}  # fmt: skip
ADDRESS = {"type": "record", "name": "Address", "namespace": "n", "fields": [{"name": "city", "type": "string"}]}
LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")


class Place:
    """A log with a registry, and a way through both."""

    def __init__(self, bootstrap_servers: str, url: str) -> None:
        self.bootstrap_servers, self.url = bootstrap_servers, url
        self.client = SchemaRegistryClient({"url": url})

    def round_trip(self, serializer: Any, deserializer: Any, value: Any, topic: str | None = None) -> Any:
        """Through the log: produced by one client, consumed by another."""
        topic = topic or f"t-{uuid.uuid4().hex[:8]}"
        context = SerializationContext(topic, MessageField.VALUE)
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        producer.produce(topic, value=serializer(value, context))
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        try:
            for _ in range(60):
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    return deserializer(message.value(), context)
        finally:
            consumer.close()
        raise AssertionError("nothing was consumed")


@pytest.fixture(params=["ottla", pytest.param("kafka", marks=pytest.mark.interop)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "ottla":
        broker: Broker = request.getfixturevalue("broker")
        registry: RegistryThread = request.getfixturevalue("registry")
        yield Place(broker.bootstrap_servers, registry.url)
        return
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    with RegistryThread(kafka.bootstrap_servers, topic="_schemas_registry_tests", replication_factor=1) as registry:
        yield Place(kafka.bootstrap_servers, registry.url)


@pytest.mark.timeout(180)
def test_avro_with_a_reference(place: Place) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    address = Schema(json.dumps(ADDRESS), "AVRO")
    place.client.register_schema(f"{topic}-address", address)
    schema = Schema(json.dumps(PERSON), "AVRO", [SchemaReference("n.Address", f"{topic}-address", 1)])
    value = {"name": "ann", "home": {"city": "Graz"}}
    serializer = AvroSerializer(place.client, schema)
    assert place.round_trip(serializer, AvroDeserializer(place.client), value, topic) == value
    assert place.client.get_latest_version(f"{topic}-value").version == 1


@pytest.mark.timeout(180)
def test_json_with_a_reference(place: Place) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    address = {"$id": "address.json", "type": "object", "properties": {"city": {"type": "string"}}}
    place.client.register_schema(f"{topic}-address", Schema(json.dumps(address), "JSON"))
    person = {
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "Person", "type": "object",
        "properties": {"name": {"type": "string"}, "home": {"$ref": "address.json"}},
    }  # fmt: skip
    schema = Schema(json.dumps(person), "JSON", [SchemaReference("address.json", f"{topic}-address", 1)])
    value = {"name": "ann", "home": {"city": "Graz"}}
    serializer = JSONSerializer(schema, place.client)
    deserializer = JSONDeserializer(schema, schema_registry_client=place.client)
    assert place.round_trip(serializer, deserializer, value, topic) == value


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Two Python modules made by protoc, one importing the other."""
    from grpc_tools import protoc

    folder = tmp_path_factory.mktemp("proto")
    (folder / "reg_address.proto").write_text('syntax = "proto3"; package reg; message Address { string city = 1; }')
    (folder / "reg_person.proto").write_text(
        'syntax = "proto3"; package reg; import "reg_address.proto"; import "google/protobuf/timestamp.proto";'
        "message Person { string name = 1; Address home = 2; optional int32 age = 3; map<string, int64> tags = 4;"
        "google.protobuf.Timestamp born = 5; oneof contact { string mail = 6; string phone = 7; }"
        "enum Kind { ANY = 0; VIP = 1; } Kind kind = 8; message Inner { bool on = 1; } repeated Inner inner = 9; }"
    )
    include = Path(protoc.__file__).parent / "_proto"
    files = ["reg_address.proto", "reg_person.proto"]
    assert protoc.main(["", f"-I{folder}", f"-I{include}", f"--python_out={folder}", *files]) == 0
    sys.path.insert(0, str(folder))
    try:
        return tuple(_loaded(folder, name) for name in ("reg_address_pb2", "reg_person_pb2"))  # type: ignore[return-value]
    finally:
        sys.path.remove(str(folder))


def _loaded(folder: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(180)
def test_protobuf_with_a_reference(place: Place, generated: tuple[Any, Any]) -> None:
    address, person = generated
    value = person.Person(
        name="ann", home=address.Address(city="Graz"), age=3, tags={"a": 1}, mail="a@b", kind=1,
        inner=[person.Person.Inner(on=True)],
    )  # fmt: skip
    value.born.FromSeconds(5)
    topic = f"t-{uuid.uuid4().hex[:8]}"
    settings = {"use.deprecated.format": False}
    serializer = ProtobufSerializer(person.Person, place.client, settings)
    deserializer = ProtobufDeserializer(person.Person, settings, place.client)
    assert place.round_trip(serializer, deserializer, value, topic) == value
    text = call(place.url, "GET", f"/subjects/{topic}-value/versions/1")[1]
    assert [reference["name"] for reference in text["references"]] == ["reg_address.proto"]
    assert "map<string, int64> tags = 4;" in text["schema"]
    # A serializer that may not register finds the same schema again.
    again = ProtobufSerializer(
        person.Person, SchemaRegistryClient({"url": place.url}), {**settings, "auto.register.schemas": False}
    )
    context = SerializationContext(topic, MessageField.VALUE)
    assert deserializer(again(value, context), context) == value


def test_without_registration_only_known_schemas_are_written(place: Place) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    schema = json.dumps(ADDRESS)
    serializer = AvroSerializer(place.client, schema, conf={"auto.register.schemas": False})
    context = SerializationContext(topic, MessageField.VALUE)
    with pytest.raises(SchemaRegistryError) as refused:
        serializer({"city": "Graz"}, context)
    assert (refused.value.http_status_code, refused.value.error_code) == (404, 40401)
    place.client.register_schema(f"{topic}-value", Schema(schema, "AVRO"))
    assert AvroDeserializer(place.client)(serializer({"city": "Graz"}, context), context) == {"city": "Graz"}


def test_the_latest_version_is_used_when_asked_for(place: Place) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    newer = {**ADDRESS, "fields": [*ADDRESS["fields"], {"name": "zip", "type": "string", "default": "0"}]}
    for schema in (ADDRESS, newer):
        place.client.register_schema(f"{topic}-value", Schema(json.dumps(schema), "AVRO"))
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    serializer = AvroSerializer(place.client, json.dumps(ADDRESS), conf=settings)
    context = SerializationContext(topic, MessageField.VALUE)
    written = serializer({"city": "Graz", "zip": "8010"}, context)
    assert AvroDeserializer(place.client)(written, context) == {"city": "Graz", "zip": "8010"}


AVRO_OLD = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
AVRO_ADDED = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}
AVRO_REMOVED = {"type": "record", "name": "E", "fields": [{"name": "b", "type": "int", "default": 0}]}
JSON_OLD = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
JSON_WIDER = {"type": "object", "properties": {"a": {"type": "number"}}, "additionalProperties": False}
PROTO_OLD = 'syntax = "proto2"; message E { optional int32 a = 1; }'
PROTO_REQUIRED = 'syntax = "proto2"; message E { optional int32 a = 1; required int32 b = 2; }'
PROTO_CHANGED = 'syntax = "proto2"; message E { optional string a = 1; }'
BACK, FORTH, FULL = {"BACKWARD", "BACKWARD_TRANSITIVE"}, {"FORWARD", "FORWARD_TRANSITIVE"}, {"FULL", "FULL_TRANSITIVE"}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kind", "old", "new", "allowed"),
    [
        ("AVRO", AVRO_OLD, AVRO_ADDED, FORTH),
        ("AVRO", AVRO_OLD, AVRO_REMOVED, BACK),
        ("JSON", JSON_OLD, JSON_WIDER, BACK),
        ("JSON", JSON_WIDER, JSON_OLD, FORTH),
        ("PROTOBUF", PROTO_OLD, PROTO_REQUIRED, set()),
        ("PROTOBUF", PROTO_OLD, PROTO_CHANGED, set()),
    ],
)
def test_evolution_in_each_mode(
    registry: RegistryThread, level: str, kind: str, old: Any, new: Any, allowed: set[str]
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    subject = f"e-{uuid.uuid4().hex[:8]}"
    client.set_compatibility(subject, level)
    texts = [schema if isinstance(schema, str) else json.dumps(schema) for schema in (old, new)]
    client.register_schema(subject, Schema(texts[0], kind))
    expected = level == "NONE" or level in allowed
    assert client.test_compatibility(subject, Schema(texts[1], kind)) is expected
    if expected:
        assert client.register_schema(subject, Schema(texts[1], kind)) > 0
    else:
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema(subject, Schema(texts[1], kind))
        assert refused.value.http_status_code == 409
