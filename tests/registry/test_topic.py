"""The `_schemas` topic: Confluent's format in both directions, restarts, compaction, and the races that it settles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.registry.log import SchemasLog
from ottla.registry.records import SchemaValue, ids_record, schema_record, schema_tombstone
from ottla.registry.settings import RegistryStartError
from ottla.registry.state import RegistryState
from ottla.testing import Broker
from tests.registry.instances import RegistryThread, call, register

# As Confluent Platform writes them, by the fields of its record classes; none was taken from a live topic.
CONFLUENT = [
    ('{"keytype":"CONFIG","magic":0}', '{"compatibilityLevel":"FULL"}'),
    ('{"keytype":"NOOP","magic":0}', None),
    ('{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}', '{"subject":"a-value","version":1,"id":3,"schema":"\\"string\\"","deleted":false}'),
    ('{"keytype":"SCHEMA","subject":"b-value","version":1,"magic":1}', '{"subject":"b-value","version":1,"id":7,"md5":"AAAAAAAAAAAAAAAAAAAAAA==","schemaType":"JSON","schema":"{\\"type\\":\\"object\\"}","deleted":false}'),
    ('{"keytype":"SCHEMA","subject":"c-value","version":1,"magic":1}', '{"subject":"c-value","version":1,"id":8,"schema":"\\"int\\"","deleted":false}'),
    ('{"keytype":"SCHEMA","subject":"c-value","version":2,"magic":1}', '{"subject":"c-value","version":2,"id":9,"references":[{"name":"x","subject":"a-value","version":1}],"schema":"\\"long\\"","deleted":false}'),
    ('{"keytype":"DELETE_SUBJECT","subject":"c-value","magic":0}', '{"subject":"c-value","version":2}'),
    ('{"keytype":"MODE","subject":"b-value","magic":0}', '{"subject":"b-value","mode":"READONLY"}'),
    ('{"keytype":"CONFIG","subject":"a-value","magic":0}', '{"subject":"a-value","compatibilityLevel":"NONE"}'),
    ('{"keytype":"CONTEXT","tenant":"default","context":".","magic":0}', '{"tenant":"default","context":"."}'),
    ('{"keytype":"SOMETHING_NEW","magic":0}', "{}"),
]  # fmt: skip


def write(bootstrap_servers: str, records: list[tuple[str, str | None]], topic: str = "_schemas") -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(20) == 0


def read(bootstrap_servers: str, topic: str = "_schemas") -> list[tuple[str, Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "x", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append((message.key().decode(), json.loads(message.value()) if message.value() else None))
    consumer.close()
    return found


@pytest.mark.timeout(180)
def test_it_takes_over_from_confluent(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        write(broker.bootstrap_servers, CONFLUENT)
        with RegistryThread(broker.bootstrap_servers) as registry:
            url = registry.url
            assert call(url, "GET", "/subjects")[1] == ["a-value", "b-value"]
            assert call(url, "GET", "/schemas/ids/3")[1]["schema"] == '"string"'
            assert call(url, "GET", "/schemas/ids/7")[1]["schemaType"] == "JSON"
            assert call(url, "GET", "/subjects/c-value/versions?deleted=true")[1] == [1, 2]
            assert call(url, "GET", "/config")[1] == {"compatibilityLevel": "FULL"}
            assert call(url, "GET", "/config/a-value")[1] == {"compatibilityLevel": "NONE"}
            assert call(url, "GET", "/mode/b-value")[1] == {"mode": "READONLY"}
            assert register(url, "d-value", '"bytes"')[1]["id"] == 10


@pytest.mark.timeout(180)
def test_it_writes_what_confluent_reads(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        with RegistryThread(broker.bootstrap_servers) as registry:
            url = registry.url
            register(url, "s", '"string"')
            register(url, "j", "{}", "JSON")
            call(url, "PUT", "/config", {"compatibility": "FULL"})
            call(url, "PUT", "/mode/s", {"mode": "READONLY"})
            call(url, "DELETE", "/subjects/j")
            call(url, "DELETE", "/subjects/j?permanent=true")
        assert read(broker.bootstrap_servers) == [
            ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', {"subject": "s", "version": 1, "id": 1, "schema": '"string"', "deleted": False}),
            ('{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}', {"subject": "j", "version": 1, "id": 2, "schemaType": "JSON", "schema": "{}", "deleted": False}),
            ('{"keytype":"CONFIG","magic":0}', {"compatibilityLevel": "FULL"}),
            ('{"keytype":"MODE","subject":"s","magic":0}', {"subject": "s", "mode": "READONLY"}),
            ('{"keytype":"DELETE_SUBJECT","subject":"j","magic":0}', {"subject": "j", "version": 1}),
            ('{"keytype":"NOOP","magic":0}', {"maxIds": {".": 2}}),
            ('{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}', None),
            ('{"keytype":"DELETE_SUBJECT","subject":"j","magic":0}', None),
        ]  # fmt: skip


@pytest.mark.timeout(180)
def test_a_restart_finds_everything_again(tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "b") as broker:
        with RegistryThread(broker.bootstrap_servers) as one:
            first = register(one.url, "s", '"string"', metadata={"properties": {"a": "b"}})[1]
            register(one.url, "s2", '"int"')
            call(one.url, "DELETE", "/subjects/s2/versions/1")
        with RegistryThread(broker.bootstrap_servers) as two:
            assert register(two.url, "s", '"string"', metadata={"properties": {"a": "b"}})[1] == first
            assert call(two.url, "GET", "/subjects?deleted=true")[1] == ["s", "s2"]
            assert register(two.url, "s3", '"long"')[1]["id"] == 3


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("partitions", "config", "words"),
    [(2, {"cleanup.policy": "compact"}, "2 partitions"), (1, {}, "Expected cleanup.policy to be 'compact'")],
)
def test_a_wrong_topic_is_not_used(broker: Broker, partitions: int, config: dict[str, str], words: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    name = f"_schemas_{partitions}"
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(20)
    with pytest.raises(RegistryStartError, match=words), RegistryThread(broker.bootstrap_servers, topic=name):
        pass


# Races, record by record


def value(subject: str, schema_id: int, schema: str, version: int = 1) -> SchemaValue:
    return SchemaValue(subject, version, schema_id, deleted=False, schema=schema)


def test_of_two_records_made_on_the_same_state_the_first_counts() -> None:
    log = SchemasLog(RegistryState())
    one, two = (schema_record(value("s", 1, schema)) for schema in ('"int"', '"long"'))
    log.apply([(0, *one, 0), (1, *two, 0)])
    assert log.state.subjects["s"][1].schema == '"int"'
    assert (log.outcome(0, 0), log.outcome(1, 0)) == (True, False)
    # The loser decides anew on what it has read meanwhile.
    log.apply([(2, *schema_record(value("s2", 2, '"long"')), log.seen)])
    assert log.state.by_id(".", 2)


def test_a_void_record_is_written_over_so_that_compaction_cannot_bring_it_back() -> None:
    log = SchemasLog(RegistryState())
    key, winner = schema_record(value("s", 1, '"int"'))
    loser = schema_record(value("s", 1, '"long"'))[1]
    log.apply([(0, key, winner, 0), (1, key, loser, 0)])
    assert set(log.voided) == {key}
    repair = log.state.record_for(key)
    assert repair == (key, winner)
    log.apply([(2, *repair, log.seen)])
    assert log.voided == {}
    # What compaction leaves: the last record of the key.
    compacted = SchemasLog(RegistryState())
    compacted.apply([(2, *repair, 1)])
    assert compacted.state.subjects["s"][1].schema == '"int"'


def test_compaction_never_makes_a_valid_record_void() -> None:
    """Whatever is left out, what carried the right offset still does."""
    full = SchemasLog(RegistryState())
    records = []
    for offset in range(10):
        record = schema_record(value(f"s{offset % 3}", offset + 1, f'"x{offset}"'))
        records.append((offset, *record, full.seen))
        full.apply(records[-1:])
    compacted = SchemasLog(RegistryState())
    compacted.apply(records[-3:])
    assert {s: v[1].id for s, v in compacted.state.subjects.items()} == {
        s: v[1].id for s, v in full.state.subjects.items()
    }


def test_the_largest_id_survives_a_permanent_delete_and_compaction() -> None:
    log = SchemasLog(RegistryState())
    log.apply([(5, *ids_record({".": 9}), None), (7, *schema_tombstone("s", 1), None)])
    assert log.state.context(".").max_id == 9


def test_records_that_cannot_be_read_are_passed_over() -> None:
    log = SchemasLog(RegistryState())
    log.apply(
        [
            (0, b"no json", b"{}", None),
            (1, b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"[]", None),
            (2, None, b"x", None),
        ]
    )
    log.apply([(3, *schema_record(value("s", 1, '"int"')), None)])
    assert log.state.versions("s")
    assert log.position == 4
