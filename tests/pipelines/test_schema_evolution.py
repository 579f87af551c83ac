"""Schemas that change under a running pipeline, with Ottla's registry: added fields are left out until a restart, with a
warning; a version that cannot be read, and a framing of another message, are errors of their records."""

from __future__ import annotations

import json

import pytest

from ottla.client.errors import RegistryUnreachable
from ottla.client.schema_registry import RegistryClient, register_schema
from ottla.payloads.confluent import framed, indexes_prefix
from ottla.pipelines import codecs, schema_watch
from ottla.pipelines.ports import Format, topic
from ottla.testing import Broker
from tests.pipelines.messages import TEXT, Deep, Everything, First
from tests.pipelines.test_avro_values import record, written
from tests.support.schema_registry import schema_registry

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def registry():
    with Broker() as broker, schema_registry(broker.bootstrap_servers) as address:
        RegistryClient(address).call("PUT", "config", body={"compatibility": "NONE"})
        yield address


def test_new_avro_versions_under_a_running_reader(registry, capsys):
    first = record(n="int")
    ids = {0: register_schema(registry, "o-value", json.dumps(first), "AVRO")}
    read, kind = codecs._avro_reader(Format(kind="avro", registry=registry), "o-value")
    later = [record(n="int", added=("string", "")), record(n="string"), record(n="long", other=(["null", "int"], None))]
    for number, schema in enumerate(later, 1):
        ids[number] = register_schema(registry, "o-value", json.dumps(schema), "AVRO")
    assert kind.simpleString() == "struct<n:int>"
    for _ in range(3):
        assert read(framed(ids[0], written(first, {"n": 1})[0]))["n"] == 1
        assert read(framed(ids[1], written(later[0], {"n": 2, "added": "x"})[0]))["n"] == 2
    for number, row in ((2, {"n": "x"}), (3, {"n": 3, "other": None})):
        with pytest.raises(ValueError, match=r"n: the writer's type (string|long) cannot be read as int"):
            read(framed(ids[number], written(later[number - 1], row)[0]))
    warnings = [
        line for line in capsys.readouterr().err.splitlines() if "WARNING" in line and f"schema {ids[1]}" in line
    ]
    assert len(warnings) == 1
    assert warnings[0].endswith("has fields that this run does not read: added. Restart the pipeline to read them")
    # A restart reads the newest version.
    _, newest = codecs._avro_reader(Format(kind="avro", registry=registry), "o-value")
    assert newest.simpleString() == "struct<n:bigint,other:int>"


def test_avro_schemas_that_refer_to_others(registry):
    client = RegistryClient(registry)
    client.register(
        "inner", {"schema": json.dumps({"type": "record", "name": "a.Inner", "fields": [{"name": "x", "type": "int"}]})}
    )
    middle = {"type": "record", "name": "a.Middle", "fields": [{"name": "inner", "type": "a.Inner"}]}
    needs_inner = [{"name": "a.Inner", "subject": "inner", "version": 1}]
    client.register("middle", {"schema": json.dumps(middle), "references": needs_inner})
    references = [{"name": "a.Middle", "subject": "middle", "version": 1}]
    schema_id = client.register(
        "events-value", {"schema": json.dumps(["a.Middle", "string"]), "references": references}
    )
    read, kind = codecs._avro_reader(Format(kind="avro", registry=registry), "events-value")
    assert kind.simpleString() == "struct<member0:struct<inner:struct<x:int>>,member1:string>"
    assert read(framed(schema_id, b"\x00\x06"))["member0"]["inner"]["x"] == 3


def test_only_what_the_registry_says_of_an_id_is_an_error_of_the_record(registry):
    read, _ = codecs._avro_reader(Format(kind="avro", registry=registry, schema=json.dumps(record(n="int"))), "x")
    with pytest.raises(ValueError, match="has no schema 99999"):
        read(framed(99_999, b"\x02"))
    away, _ = codecs._avro_reader(
        Format(kind="avro", registry="http://127.0.0.1:9", schema=json.dumps(record(n="int"))), "x"
    )
    with pytest.raises(RegistryUnreachable):
        away(framed(1, b"\x02"))


def test_the_indexes_of_protobuf_messages_are_checked(registry):
    schema_id = register_schema(registry, "p-value", TEXT, "PROTOBUF")

    def reader(name):
        return codecs._protobuf_reader(
            Format(kind="protobuf", schema=f"tests.pipelines.messages:{name}", registry=registry), "p-value"
        )[0]

    deep, first = Deep(s="x").SerializeToString(), First(n=1).SerializeToString()
    assert reader("Deep")(framed(schema_id, indexes_prefix((0, 0)) + deep)) == {"s": "x"}
    assert reader("First")(framed(schema_id, indexes_prefix((0,)) + first)) == {"n": 1}
    everything = Everything(i=5).SerializeToString()
    assert reader("Everything")(framed(schema_id, indexes_prefix((1,)) + everything))["i"] == 5
    for indexes, words in (((0,), "the message First of the schema"), ((9,), "no message at the indexes")):
        with pytest.raises(ValueError, match=words):
            reader("Everything")(framed(schema_id, indexes_prefix(indexes) + everything))
    import pyarrow as pa

    write = codecs._protobuf_writer(
        Format(kind="protobuf", schema="tests.pipelines.messages:Deep", registry=registry),
        "p-value",
        pa.struct([("s", pa.string())]),
    )
    assert write({"s": "x"}) == framed(schema_id, indexes_prefix((0, 0)) + deep)


def test_new_protobuf_versions_under_a_running_reader(registry, capsys):
    form = Format(kind="protobuf", schema="tests.pipelines.messages:First", registry=registry)
    read, _ = codecs._protobuf_reader(form, "q-value")
    added = 'syntax = "proto3"; package shop; message First { int32 n = 1; string extra = 2; }'
    changed = 'syntax = "proto3"; package shop; message First { string n = 1; }'
    newer, wrong = (register_schema(registry, "q-value", text, "PROTOBUF") for text in (added, changed))
    for _ in range(2):
        assert read(framed(newer, b"\0\x08\x07\x12\x01x")) == {"n": 7}
    with pytest.raises(ValueError, match=r"the writer's field n \(1\) cannot be read as shop\.First\.n"):
        read(framed(wrong, b"\0\x0a\x01x"))
    warnings = [line for line in capsys.readouterr().err.splitlines() if f"schema {newer} of" in line]
    assert len(warnings) == 1
    assert "extra" in warnings[0]


def test_a_new_version_is_one_warning_of_the_run(registry, capsys, monkeypatch):
    """In the log and in the status: an added field by a restart, a type that changed by the dead letters."""
    monkeypatch.setattr(schema_watch, "POLL_S", 3600.0)
    register_schema(registry, "w-value", json.dumps(record(n="int")), "AVRO")
    register_schema(registry, "v-value", 'syntax = "proto3"; package shop; message First { int32 n = 1; }', "PROTOBUF")
    inputs = [
        topic("w", value="avro", registry=registry),
        topic("w", value="avro", registry=registry, dead_letter="w.bad"),
        topic("v", value="protobuf", schema="tests.pipelines.messages:First", registry=registry),
        topic("away", value="avro", registry="http://127.0.0.1:9"),
        topic("plain", value="json", schema="n int"),
    ]
    with schema_watch.SchemaWatch(inputs) as watch:
        assert watch.warnings == []
        register_schema(registry, "w-value", json.dumps(record(n="int", added=("string", ""))), "AVRO")
        register_schema(registry, "w-value", json.dumps(record(n="string")), "AVRO")
        added = 'syntax = "proto3"; package shop; message First { int32 n = 1; string extra = 2; }'
        register_schema(registry, "v-value", added, "PROTOBUF")
        for _ in range(2):
            watch.look()
    unread = "has fields that this run does not read"
    assert watch.warnings == [
        f"version 2 of w-value {unread}: added; restart the pipeline to read them",
        (
            "version 3 of w-value cannot be read by this run: n: the writer's type string cannot be read as int. Its records go "
            "to the dead letters, or stop the step: create new outputs with `ottla pipeline backfill` to read them"
        ),
        f"version 2 of v-value {unread}: extra; add them to the schema of the input and restart to read them",
    ]
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ottla: WARNING: version")]
    assert lines == [f"ottla: WARNING: {sentence}" for sentence in watch.warnings]
    with schema_watch.SchemaWatch(inputs) as after_restart:
        after_restart.look()
    assert after_restart.warnings == []


def test_a_registry_that_is_away_at_the_start_is_asked_again(registry, monkeypatch):
    monkeypatch.setattr(schema_watch, "POLL_S", 3600.0)
    register_schema(registry, "late-value", json.dumps(record(n="int")), "AVRO")
    with schema_watch.SchemaWatch([topic("late", value="avro", registry="http://127.0.0.1:9")]) as watch:
        watch._subjects[0].registry = registry
        watch.look()
        register_schema(registry, "late-value", json.dumps(record(n="int", more=("int", 0))), "AVRO")
        watch.look()
    assert [sentence.split(";")[0].rpartition(" ")[2] for sentence in watch.warnings] == ["more"]
