"""Connectors and what data is really like: nulls, new columns, odd names, times that are equal, rows that do not fit."""

from __future__ import annotations

import json
import sqlite3
import threading
import time

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.connect.sender import Outgoing, Sender
from ottla.connect.sinks.delta import read_delta
from ottla.connect.worker import run_connector
from ottla.model.user_error import UserError
from ottla.tables.query import topic_table
from ottla.testing import Broker

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def client():
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers}


def send(client, topic, *values, key=None):
    sender = Sender(client)
    encoded = (one if isinstance(one, bytes | None) else json.dumps(one).encode() for one in values)
    sender.send(Outgoing(topic, key, one) for one in encoded)
    sender.flush()


def rows_of(client, topic):
    return topic_table(client, topic, with_headers=True).to_pylist()


def sink_of(kind, name, tmp_path, **more):
    config = {"name": f"{name}-{kind}", "topics": name, "flush.size": "3", "connector.class": f"{kind}-sink", **more}
    places = {
        "parquet": {"path": str(tmp_path / name)},
        "delta": {"path": str(tmp_path / name)},
        "iceberg": {
            "catalog.uri": f"sqlite:///{tmp_path}/c.db",
            "warehouse": str(tmp_path),
            "table": f"db.{name.replace('-', '_')}",
        },
        "sql": {"connection.url": f"sqlite:///{tmp_path}/{name}.db", "table.name.format": "t", "auto.evolve": "true"},
    }
    return config | places[kind]


def table_of(kind, name, tmp_path):
    if kind == "parquet":
        pieces = [pq.read_table(path) for path in sorted((tmp_path / name).rglob("*.parquet"))]
        return pa.concat_tables(pieces, promote_options="default").to_pylist()
    if kind == "delta":
        return read_delta(str(tmp_path / name))[0].to_pylist()
    if kind == "sql":
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute("select * from t")]
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("ottla", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    return catalog.load_table(f"db.{name.replace('-', '_')}").scan().to_arrow().to_pylist()


@pytest.mark.parametrize(
    ("kind", "keyed"),
    [("parquet", False), ("delta", False), ("delta", True), ("iceberg", False), ("sql", False), ("sql", True)],
)
def test_columns_come_and_go(client, tmp_path, kind, keyed):
    """A column that is null or empty at first gets its type later; a new one is added; one that is missing is null."""
    name = f"grow-{kind}-{keyed}"
    more = {"pk.fields": "id"} | ({"insert.mode": "upsert"} if kind == "sql" else {}) if keyed else {}
    values = [{"id": n, "later": None, "empty": {}, "list": []} for n in (1, 2, 3)]
    values += [{"id": 4, "later": 5, "new é": "x"}, {"id": 5}]
    send(client, name, *values)
    assert run_connector(sink_of(kind, name, tmp_path, **more), client, once=True) == 5
    found = sorted(table_of(kind, name, tmp_path), key=lambda row: row["id"])
    assert [(row["id"], row["later"], row["new é"]) for row in found] == [
        (1, None, None), (2, None, None), (3, None, None), (4, 5, "x"), (5, None, None),
    ]  # fmt: skip


def test_an_upsert_may_set_a_value_to_null(client, tmp_path):
    for kind in ("delta", "sql"):
        name = f"unset-{kind}"
        config = sink_of(kind, name, tmp_path, **{"pk.fields": "id", "insert.mode": "upsert", "flush.size": "1"})
        send(client, name, {"id": 1, "x": 5}, {"id": 1, "x": None})
        run_connector(config, client, once=True)
        assert table_of(kind, name, tmp_path) == [{"id": 1, "x": None}], kind


def test_what_does_not_fit_its_column_need_not_stop_the_rest(client, tmp_path):
    send(client, "misfit", {"id": 1, "x": 1}, {"id": 2, "x": "two"}, {"id": 3, "x": 2**70}, {"id": 4, "x": 4}, key=b"k")
    config = sink_of("delta", "misfit", tmp_path, **{"flush.size": "100"})
    with pytest.raises(UserError, match="misfit-0 offset 1: the column x is int64, and not 'two'"):
        run_connector(config, client, once=True)
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "misfit.dead"}
    assert run_connector(config | dead, client, once=True) == 4
    assert [row["id"] for row in table_of("delta", "misfit", tmp_path)] == [1, 4]
    letters = rows_of(client, "misfit.dead")
    assert [(row["key"], json.loads(row["value"])["id"]) for row in letters] == [(b"k", 2), (b"k", 3)]
    told = {one["key"].removeprefix("__connect.errors."): one["value"] for one in letters[0]["headers"]}
    assert (told["offset"], told["stage"], told["connector.name"]) == (b"1", b"TASK_PUT", b"misfit-delta")


def test_partition_values_stay_in_their_folder(client, tmp_path):
    given = ["a/b", None, "../../evil", "ü=1", float("nan")]
    values = [json.dumps({"p": p, "n": n}).encode() for n, p in enumerate(given)] + [b'{"n": 5}', b'{"p": "", "n": 6}']
    send(client, "folders", *values)
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "folders.dead"}
    config = sink_of("parquet", "folders", tmp_path, **{"partition.by": "p", "flush.size": "100"}, **dead)
    assert run_connector(config, client, once=True) == 7
    assert {path.name for path in tmp_path.iterdir()} == {"folders"}
    found = pyarrow.dataset.dataset(tmp_path / "folders", partitioning="hive").to_table().to_pylist()
    assert {(row["n"], row["p"]) for row in found} == {
        (0, "a/b"), (1, None), (2, "../../evil"), (3, "ü=1"), (5, None), (6, None),
    }  # fmt: skip
    assert len(rows_of(client, "folders.dead")) == 1  # a number where the others are text


def test_a_partition_that_is_no_number_keeps_its_rows(client, tmp_path):
    send(client, "nan", b'{"p": NaN, "n": 1}', b'{"p": 1.5, "n": 2}')
    assert run_connector(sink_of("parquet", "nan", tmp_path, **{"partition.by": "p"}), client, once=True) == 2
    assert sorted(row["n"] for row in table_of("parquet", "nan", tmp_path)) == [1, 2]


def test_rows_of_one_time_are_all_read_and_those_without_are_none(client, tmp_path):
    database = sqlite3.connect(tmp_path / "t.db")
    database.execute('create table "or""d é" (id integer, "at time" text)')
    times = ["2026-01-01"] * 7 + [None] + ["2026-01-02"] * 4
    database.executemany('insert into "or""d é" values (?, ?)', list(enumerate(times)))
    database.commit()
    config = {
        "name": "times", "connector.class": "sql-source", "connection.url": f"sqlite:///{tmp_path}/t.db", "mode": "timestamp",
        "table.whitelist": 'main."or""d é"', "timestamp.column.name": "at time", "batch.max.rows": "3", "transforms": "r",
        "transforms.r.type": "RegexRouter", "transforms.r.regex": '(.*)"(.*)', "transforms.r.replacement": "times-$1",
    }  # fmt: skip
    assert run_connector(config, client, once=True) == 11
    database.execute('insert into "or""d é" values (20, ?)', ["2026-01-03"])
    database.commit()
    assert run_connector(config, client, once=True) == 1
    found = [json.loads(row["value"])["id"] for row in rows_of(client, "times-or")]
    assert sorted(found) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 20]
    database.close()


def test_primary_keys_from_the_key_and_from_the_log(client, tmp_path):
    send(client, "keyed", {"n": 1}, {"n": 2}, key=b"a")
    send(client, "keyed", {"n": 3}, key=b"b")
    more = {"pk.mode": "record_key", "pk.fields": "id", "insert.mode": "upsert", "delete.enabled": "true"}
    config = sink_of("sql", "keyed", tmp_path, **more)
    assert run_connector(config, client, once=True) == 3
    assert table_of("sql", "keyed", tmp_path) == [{"id": "a", "n": 2}, {"id": "b", "n": 3}]
    send(client, "keyed", None, key=b"a")
    assert run_connector(config, client, once=True) == 1
    assert table_of("sql", "keyed", tmp_path) == [{"id": "b", "n": 3}]
    config = sink_of("sql", "keyed", tmp_path, **{"pk.mode": "kafka", "pk.fields": "t,p,o"})
    assert run_connector(config | {"name": "log", "table.name.format": "log"}, client, once=True) == 4
    with sqlite3.connect(tmp_path / "keyed.db") as database:
        assert database.execute("select t, p, o, n from log order by o").fetchall() == [
            ("keyed", 0, 0, 1), ("keyed", 0, 1, 2), ("keyed", 0, 2, 3),
        ]  # fmt: skip


def test_json_with_schemas_is_wrapped_and_must_be(client, tmp_path):
    converter = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
    }
    (tmp_path / "in.jsonl").write_text('{"id": 1}\n')
    source = {"name": "wrap", "connector.class": "file-source", "file": str(tmp_path / "in.jsonl"), "topic": "wrapped"}
    assert run_connector(source | converter | {"format": "json"}, client, once=True) == 1
    assert json.loads(rows_of(client, "wrapped")[0]["value"]) == {"schema": None, "payload": {"id": 1}}
    sink = sink_of("sql", "wrapped", tmp_path, **converter)
    assert run_connector(sink, client, once=True) == 1
    assert table_of("sql", "wrapped", tmp_path) == [{"id": 1}]
    send(client, "wrapped", {"id": 2})
    with pytest.raises(UserError, match="schema and payload"):
        run_connector(sink, client, once=True)


def test_a_record_that_is_too_large_is_said_or_left_out(client, tmp_path):
    path = tmp_path / "big.txt"
    path.write_text("a\n" + "x" * 3_000_000 + "\nb\n")
    config = {
        "name": "big",
        "connector.class": "file-source",
        "file": str(path),
        "topic": "big",
        "value.converter": "string",
    }
    with pytest.raises(UserError, match=r"a record for big of 3,000,000 bytes.*max.request.size"):
        run_connector(config, client, once=True)
    run_connector(config | {"errors.tolerance": "all"}, client, once=True)
    assert [row["value"] for row in rows_of(client, "big")] == [b"a", b"b"]


def test_a_running_sink_sees_partitions_and_topics_that_come(client, tmp_path):
    admin = AdminClient(client)
    admin.create_topics([NewTopic("come-a", 1)])["come-a"].result(30)
    send(client, "come-a", {"n": 1})
    config = {"topics.regex": "come-.*", "consumer.override.metadata.max.age.ms": "300"}
    config = sink_of("delta", "come", tmp_path) | config
    del config["topics"]
    stop = threading.Event()
    work = threading.Thread(
        target=run_connector, args=(config, client), kwargs={"once": False, "stopping": stop.is_set}
    )
    work.start()
    try:
        _until(lambda: [row["n"] for row in table_of("delta", "come", tmp_path)] == [1])
        admin.create_partitions([NewPartitions("come-a", 2)])["come-a"].result(30)
        admin.create_topics([NewTopic("come-b", 1)])["come-b"].result(30)
        sender = Sender(client)
        sender.send([Outgoing("come-a", None, b'{"n": 2}', None, 1), Outgoing("come-b", None, b'{"n": 3}')])
        sender.flush()
        _until(lambda: sorted(row["n"] for row in table_of("delta", "come", tmp_path)) == [1, 2, 3])
    finally:
        stop.set()
        work.join(60)


def _until(holds):
    deadline = time.monotonic() + 60
    while True:
        try:
            if holds():
                return
        except UserError:
            pass  # no table yet
        assert time.monotonic() < deadline
        time.sleep(0.1)
