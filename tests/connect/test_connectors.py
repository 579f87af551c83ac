"""Connectors end to end, on a real log: files and tables in, tables and files out, each record exactly once."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from typing import ClassVar

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from ottla.connect.config import connector_class, load_config
from ottla.connect.connector import Change, Sink, Source
from ottla.connect.sender import Outgoing, Sender
from ottla.connect.sinks.delta import read_delta
from ottla.connect.sinks.sql import connection_url
from ottla.connect.transforms import chain
from ottla.connect.worker import run_connector
from ottla.model.user_error import UserError
from ottla.tables.query import topic_table
from ottla.testing import Broker

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def client():
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers}


def rows_of(client, topic):
    return topic_table(client, topic, with_headers=True).to_pylist()


def send(client, topic, values):
    sender = Sender(client)
    sender.send(Outgoing(topic, None if key is None else key.encode(), value) for key, value in values)
    sender.flush()


def test_a_growing_file_and_a_folder(client, tmp_path):
    log = tmp_path / "app.log"
    log.write_bytes(b"one\ntwo\nthr")
    config = {
        "name": "tail",
        "connector.class": "file-source",
        "file": str(log),
        "topic": "lines",
        "value.converter": "string",
    }
    assert run_connector(config, client, once=True) == 2
    with log.open("ab") as file:
        file.write(b"ee\nfour\n")
    assert run_connector(config, client, once=True) == 2
    assert run_connector(config, client, once=True) == 0
    assert [row["value"] for row in rows_of(client, "lines")] == [b"one", b"two", b"three", b"four"]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,name\n1,ada\n2,bob\n")
    config = {"name": "csv", "connector.class": "file-source", "file": str(folder), "topic": "people", "format": "csv",
              "transforms": "cast,key,id", "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
              "transforms.cast.spec": "id:int32", "transforms.key.type": "ValueToKey", "transforms.key.fields": "id",
              "transforms.id.type": "ExtractField$Key", "transforms.id.field": "id"}  # fmt: skip
    assert run_connector(config, client, once=True) == 2
    (folder / "b.csv").write_text("id,name\n3,eve\n")
    assert run_connector(config, client, once=True) == 1
    found = rows_of(client, "people")
    assert [(row["key"], json.loads(row["value"])) for row in sorted(found, key=lambda row: row["key"])] == [
        (b"1", {"id": 1, "name": "ada"}), (b"2", {"id": 2, "name": "bob"}), (b"3", {"id": 3, "name": "eve"}),
    ]  # fmt: skip
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "x.parquet")
    config = {
        "name": "pq",
        "connector.class": "file-source",
        "file": str(tmp_path / "*.parquet"),
        "topic": "numbers",
        "format": "parquet",
    }
    assert run_connector(config, client, once=True) == 3


def test_a_table_in_and_a_table_out(client, tmp_path):
    source, target = tmp_path / "in.db", tmp_path / "out.db"
    database = sqlite3.connect(source)
    database.execute("create table orders (id integer primary key, item text, price real)")
    database.executemany("insert into orders values (?, ?, ?)", [(n, f"item{n}", n / 2) for n in range(1, 26)])
    database.commit()
    config = {"name": "orders-in", "connector.class": "sql-source", "connection.url": f"sqlite:///{source}",
              "table.whitelist": "orders", "mode": "incrementing", "incrementing.column.name": "id", "batch.max.rows": "10",
              "topic.prefix": "db-", "transforms": "key,id", "transforms.key.type": "ValueToKey", "transforms.key.fields": "id",
              "transforms.id.type": "ExtractField$Key", "transforms.id.field": "id"}  # fmt: skip
    assert run_connector(config, client, once=True) == 25
    database.execute("insert into orders values (26, 'more', 1.5)")
    database.commit()
    assert run_connector(config, client, once=True) == 1
    sink = {"name": "orders-out", "connector.class": "sql-sink", "connection.url": f"sqlite:///{target}", "topics": "db-orders",
            "table.name.format": "copy", "insert.mode": "upsert", "pk.fields": "id", "delete.enabled": "true",
            "key.converter": "json", "flush.size": "7"}  # fmt: skip
    assert run_connector(sink, client, once=True) == 26
    changed = json.dumps({"id": 2, "item": "changed", "price": 9.0}).encode()
    send(client, "db-orders", [("1", None), ("2", changed)])
    assert run_connector(sink, client, once=True) == 2
    assert run_connector(sink, client, once=True) == 0
    copy = sqlite3.connect(target)
    found = dict(copy.execute("select id, item from copy").fetchall())
    assert found == {n: f"item{n}" for n in range(3, 26)} | {2: "changed", 26: "more"}
    copy.close()
    database.close()


@pytest.mark.parametrize("kind", ["delta", "parquet", "sql", "iceberg"])
def test_a_sink_that_dies_before_its_offsets_are_committed_repeats_nothing(client, tmp_path, kind, monkeypatch):
    topic = f"dies-{kind}"
    send(client, topic, [(None, json.dumps({"n": n, "even": n % 2 == 0}).encode()) for n in range(50)])
    config = {"name": topic, "connector.class": f"{kind}-sink", "topics": topic, "flush.size": "20", "path": str(tmp_path / "t"),
              "connection.url": f"sqlite:///{tmp_path / 'd.db'}", "catalog.uri": f"sqlite:///{tmp_path / 'c.db'}",
              "warehouse": str(tmp_path / "w"), "table": "ns.t"}  # fmt: skip
    if kind == "parquet":
        config["partition.by"] = "even"

    class Crash(Exception):
        pass

    made = connector_class(config)
    put, done = made.put, []

    def dying(self, rows, work):
        put(self, rows, work)
        done.append(work)
        if len(done) in {2, 3}:
            raise Crash  # the rows are there, the offsets are not

    monkeypatch.setattr(made, "put", dying)
    for _ in range(2):
        with pytest.raises(Crash):
            run_connector(config, client, once=True)
        send(client, topic, [(None, json.dumps({"n": 1000 + len(done), "even": True}).encode())])
    run_connector(config, client, once=True)
    expected = Counter([*range(50), 1002, 1003])
    if kind == "delta":
        found = read_delta(str(tmp_path / "t"))[0].column("n").to_pylist()
    elif kind == "parquet":
        found = pyarrow.dataset.dataset(str(tmp_path / "t"), partitioning="hive").to_table().column("n").to_pylist()
    elif kind == "sql":
        found = [row[0] for row in sqlite3.connect(tmp_path / "d.db").execute(f'select n from "{topic}"')]
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("ottla", uri=config["catalog.uri"], warehouse=f"file://{config['warehouse']}")
        found = catalog.load_table("ns.t").scan().to_arrow().column("n").to_pylist()
    assert Counter(found) == expected


def test_bad_records_stop_pass_or_go_to_the_dead_letters(client, tmp_path):
    send(client, "mixed", [(None, b'{"n": 1}'), (None, b"{broken"), (None, b'"text"'), (None, b'{"n": 2}')])
    config = {
        "name": "mixed",
        "connector.class": "sql-sink",
        "topics": "mixed",
        "connection.url": f"sqlite:///{tmp_path / 'x.db'}",
    }
    with pytest.raises(UserError, match=r"mixed-0 offset 1: the value is not JSON.*errors.tolerance"):
        run_connector(config, client, once=True)
    config |= {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "mixed-dead"}
    assert run_connector(config, client, once=True) == 4
    database = sqlite3.connect(tmp_path / "x.db")
    assert database.execute("select n from mixed order by n").fetchall() == [(1,), (2,)]
    database.close()
    letters = rows_of(client, "mixed-dead")
    assert [row["value"] for row in letters] == [b"{broken", b'"text"']
    headers = {one["key"]: one["value"] for one in letters[0]["headers"]}
    assert headers["__connect.errors.offset"] == b"1"


class Ticks(Source):
    """A connector of one's own."""

    def poll(self, after):
        start = int((after or {}).get("n", 0))
        numbers = range(start, min(start + 10, 25))
        return [Change(topic="ticks", value={"n": n}, place={"n": n + 1}) for n in numbers]


class Collect(Sink):
    rows: ClassVar[list] = []

    def put(self, rows, work):
        Collect.rows += rows.to_pylist()


def test_connectors_of_ones_own(client):
    config = {"name": "ticks", "connector.class": f"{__name__}:Ticks"}
    assert run_connector(config, client, once=True) == 25
    assert run_connector(config, client, once=True) == 0
    run_connector({"name": "collect", "connector.class": f"{__name__}:Collect", "topics": "ticks"}, client, once=True)
    assert [row["n"] for row in Collect.rows] == list(range(25))


def test_transforms_and_predicates_by_kafkas_names():
    config = {
        "transforms": "drop,route,insert,mask,flat,replace,hoist,header",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter", "transforms.drop.predicate": "dead",
        "predicates.dead.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        "transforms.route.type": "RegexRouter", "transforms.route.regex": "db-(.*)", "transforms.route.replacement": "$1-v2",
        "transforms.insert.type": "InsertField$Value", "transforms.insert.static.field": "from", "transforms.insert.static.value": "x",
        "transforms.mask.type": "MaskField$Value", "transforms.mask.fields": "secret",
        "transforms.flat.type": "Flatten$Value", "transforms.flat.delimiter": "_",
        "transforms.replace.type": "ReplaceField$Value", "transforms.replace.exclude": "noise", "transforms.replace.renames": "a_b:ab",
        "transforms.hoist.type": "HoistField$Key", "transforms.hoist.field": "id",
        "transforms.header.type": "InsertHeader", "transforms.header.header": "h", "transforms.header.value.literal": "1",
    }  # fmt: skip
    apply = chain(config)
    made = apply(Change(topic="db-t", key=7, value={"a": {"b": 1}, "secret": "s", "noise": 0}))
    assert (made.topic, made.key, made.value, made.headers) == (
        "t-v2",
        {"id": 7},
        {"ab": 1, "secret": "", "from": "x"},
        [("h", b"1")],
    )
    assert apply(Change(topic="db-t", value=None)) is None
    with pytest.raises(UserError, match="is none of"):
        chain({"transforms": "x", "transforms.x.type": "Nope"})


ROUTED = {"name": "x", "connector.class": "file-source", "file": "f", "topic": "t", "format": "text",
          "transforms": "r", "transforms.r.type": "RegexRouter"}  # fmt: skip


def test_configurations_in_each_form(tmp_path):
    (tmp_path / "a.properties").write_text("# mine\nname=a\nfile = /x=y\n")
    (tmp_path / "a.json").write_text('{"name": "a", "config": {"file": "/x=y"}}')
    (tmp_path / "a.yaml").write_text("name: a\nfile: /x=y\n")
    for end in ("properties", "json", "yaml"):
        assert load_config(str(tmp_path / f"a.{end}")) == {"name": "a", "file": "/x=y"}
    (tmp_path / "b.yaml").write_text("name: b\ntransforms: [x]\ntransforms.x:\n  type: Filter\n  negate: true\n")
    assert load_config(str(tmp_path / "b.yaml")) == {
        "name": "b", "transforms": "x", "transforms.x.type": "Filter", "transforms.x.negate": "true",
    }  # fmt: skip


def test_urls_of_jdbc():
    assert connection_url({"connection.url": "jdbc:sqlite:/x/y.db"}) == "sqlite:////x/y.db"
    given = {"connection.url": "jdbc:postgresql://h:5/d", "connection.user": "me", "connection.password": "p@ss"}
    assert connection_url(given) == "postgresql://me:p%40ss@h:5/d"


def test_wrong_configurations_are_one_clear_error(tmp_path, client):
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [")
    with pytest.raises(UserError, match="neither YAML nor JSON"):
        load_config(str(bad))
    good = tmp_path / "good.json"
    good.write_text(
        json.dumps({"name": "n", "config": {"connector.class": "sql-sink", "tasks.max": 1, "auto.create": True}})
    )
    assert load_config(str(good)) == {
        "name": "n",
        "connector.class": "sql-sink",
        "tasks.max": "1",
        "auto.create": "true",
    }
    for config, message in [
        ({"name": "x"}, "connector.class"),
        ({"name": "x", "connector.class": "nope"}, "is none of"),
        ({"name": "x", "connector.class": "sql-sink"}, "needs the setting topics"),
        (
            {"name": "x", "connector.class": "sql-sink", "topics": "t", "connection.url": "oracle://x"},
            "sqlite:///FILE or postgresql",
        ),
        (
            {"name": "x", "connector.class": "file-source", "file": "f", "topic": "t", "format": "xml"},
            "format is one of",
        ),
        ({"name": "x", "connector.class": "delta-sink", "topics": "no-such-topic", "path": "p"}, "does not exist"),
        (
            {"name": "x", "connector.class": "sql-sink", "topics": "a,b", "connection.url": "sqlite:///x.db"},
            "one connector writes one table",
        ),
        (
            {**ROUTED, "connector.class": "delta-sink", "topics": "t", "path": "p"},
            "transforms.r: a sink of rows has one target",
        ),
        ({**ROUTED}, "regex and replacement must be set"),
        ({**ROUTED, "transforms.r.regex": "(", "transforms.r.replacement": "a"}, "RegexRouter: regex: missing"),
    ]:
        with pytest.raises(UserError, match=message):
            run_connector(config, client, once=True)
