"""Avro converters with the registry: rows of a database as Avro, read back by Confluent's own deserializer and by a sink."""

from __future__ import annotations

import json
import sqlite3

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.connect.converters import ConvertError, converter
from ottla.connect.sender import Outgoing, Sender
from ottla.connect.worker import run_connector
from ottla.model.user_error import UserError
from ottla.tables.query import topic_table
from ottla.testing import Broker
from tests.support.schema_registry import schema_registry

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def bed():
    with (
        Broker(properties={"auto.create.topics.enable": "true"}) as broker,
        schema_registry(broker.bootstrap_servers) as registry,
    ):
        yield {"bootstrap.servers": broker.bootstrap_servers}, registry


def avro(registry, **more):
    return {"value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url": registry, **more}  # fmt: skip


def test_a_table_goes_through_avro_into_a_table(bed, tmp_path):
    client, registry = bed
    database = sqlite3.connect(tmp_path / "in.db")
    database.execute("create table people (id integer primary key, name text, score real, photo blob)")
    database.executemany("insert into people values (?, ?, ?, ?)", [(1, "ada", 1.5, b"\0\1"), (2, None, None, None)])
    database.commit()
    database.close()
    source = {"name": "avro-in", "connector.class": "sql-source", "connection.url": f"sqlite:///{tmp_path / 'in.db'}",
              "table.whitelist": "people", "mode": "bulk", **avro(registry)}  # fmt: skip
    assert run_connector(source, client, once=True) == 2
    theirs = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    context = SerializationContext("people", MessageField.VALUE)
    rows = [theirs(row["value"], context) for row in topic_table(client, "people").to_pylist()]
    expected = [
        {"id": 1, "name": "ada", "score": 1.5, "photo": b"\0\1"},
        {"id": 2, "name": None, "score": None, "photo": None},
    ]
    assert sorted(rows, key=lambda row: row["id"]) == expected

    # A record of Confluent's serializer with a schema of its own, and two that are no Avro.
    schema = json.dumps({"type": "record", "name": "people", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]})  # fmt: skip
    registry_client = SchemaRegistryClient({"url": registry})
    serializer = AvroSerializer(registry_client, schema, conf={"auto.register.schemas": True})
    framed = serializer({"id": 3, "name": "eve"}, SerializationContext("people-too", MessageField.VALUE))
    sender = Sender(client)
    sender.send(
        [
            Outgoing("people", None, framed),
            Outgoing("people", None, b"junk"),
            Outgoing("people", None, framed[:5] + b"\x06\x02"),
        ]
    )
    sender.flush()
    sink = {"name": "avro-out", "connector.class": "sql-sink", "topics": "people", "table.name.format": "copy",
            "connection.url": f"sqlite:///{tmp_path / 'out.db'}", "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "people.dead", **avro(registry)}  # fmt: skip
    assert run_connector(sink, client, once=True) == 5
    copy = sqlite3.connect(tmp_path / "out.db")
    assert copy.execute("select id, name from copy order by id").fetchall() == [(1, "ada"), (2, None), (3, "eve")]
    copy.close()
    assert len(topic_table(client, "people.dead").to_pylist()) == 2


def test_schemas_grow_with_the_values_and_refuse_what_does_not_fit(bed):
    _, registry = bed
    out = converter(avro(registry), "value")
    values = [
        {"a": 1, "inner": {"x": [1, None]}},
        {"a": None, "b": "new", "inner": {"x": [2.5], "y": True}},
        {"a": 2.5, "b": None, "inner": None},
    ]
    back = [out.read(out.write("grows", value)) for value in values]
    assert back[0] == {"a": 1, "inner": {"x": [1, None]}}
    assert back[1] == {"a": None, "b": "new", "inner": {"x": [2.5], "y": True}}
    assert back[2] == {"a": 2.5, "b": None, "inner": None}
    assert out.write("grows", None) is None
    with pytest.raises(ConvertError, match=r"where the values before had .*string"):
        out.write("grows", {"b": 7})
    fixed = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]})
    strict = converter(avro(registry, **{"value.converter.schema": fixed}), "value")
    assert strict.read(strict.write("fixed", {"n": 5})) == {"n": 5}
    with pytest.raises(ConvertError, match="does not fit the Avro schema of fixed"):
        strict.write("fixed", {"n": "text"})
    latest = converter(avro(registry, **{"value.converter.use.latest.version": "true"}), "value")
    assert latest.write("fixed", {"n": 5}) == strict.write("fixed", {"n": 5})
    with pytest.raises(UserError, match=r"schema\.registry\.url"):
        converter({"value.converter": "avro"}, "value")
