"""OpenLineage events of a run: their shape, names of datasets without logins, offsets, and the three destinations."""

from __future__ import annotations

import json
import re
import threading
import uuid
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, MapType, StringType, StructType

from ottla.model.user_error import UserError
from ottla.pipelines.lineage_sinks import MOST_QUEUED, TOKEN, LineageQueue, lineage_writer
from ottla.pipelines.openlineage import LineageReporter, QueryPlan, dataset_name, schema_fields
from ottla.pipelines.ports import delta, iceberg, spark_table, sql_table, table_of, topic, view
from ottla.pipelines.running import Running
from ottla.testing import Broker

SERVERS = "log:9092,other:9092"
KINDS = {"START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"}


@pytest.mark.parametrize(
    ("port", "name"),
    [
        (topic("orders"), ("kafka://log:9092", "orders")),
        (table_of(topic("users")), ("kafka://log:9092", "users")),
        (view("totals", "/t/totals", keys=["id"]), ("kafka://log:9092", "totals")),
        (delta("/t/orders"), ("file", "/t/orders")),
        (delta("s3://lake/t/orders"), ("s3://lake", "t/orders")),
        (sql_table("postgresql://app:secret@db:5432/shop", "orders"), ("postgres://db:5432", "shop.public.orders")),
        (sql_table("postgresql://db/shop", "sales.orders"), ("postgres://db", "shop.sales.orders")),
        (sql_table("sqlite:////t/shop.db", "orders"), ("sqlite", "//t/shop.db#orders")),
        (iceberg("lake.orders", catalog={"uri": "http://me:secret@rest:8181"}), ("http://rest:8181", "lake.orders")),
        (iceberg("lake.orders", catalog={"type": "glue"}), ("iceberg", "lake.orders")),
        (spark_table("jdbc", {"dbtable": "orders"}), ("jdbc", "orders")),
    ],
)
def test_names_follow_the_naming_rules_and_hold_no_login(port: Any, name: tuple[str, str]) -> None:
    assert dataset_name(port, SERVERS) == name


def columns(**kinds: DataType) -> StructType:
    schema = StructType()
    for name, kind in kinds.items():
        schema = schema.add(name, kind)
    return schema


def test_columns_are_those_of_values() -> None:
    schema = columns(
        id=LongType(), place=columns(city=StringType()), tags=MapType(StringType(), IntegerType()), _key=StringType()
    )
    assert schema_fields(schema) == [
        {"name": "id", "type": "bigint"},
        {"name": "place", "type": "struct", "fields": [{"name": "city", "type": "string"}]},
        {"name": "tags", "type": "map<string,int>"},
    ]


def running(name: str = "shop/totals", offset: int = 7) -> Running:
    source = {"endOffset": {"orders": {"0": offset}, "@ottla": {"version": 1}}, "latestOffset": {"orders": {"0": 9}}}
    progress = {"batchId": 3, "sources": [source], "numInputRows": 5, "timestamp": "2026-11-19T10:00:00.000Z"}
    query: Any = SimpleNamespace(isActive=True, lastProgress=progress, recentProgress=[progress])
    step: Any = SimpleNamespace(name=name.partition("/")[2])
    made = Running(name=name, step=step, start=lambda: None, query=query)  # type: ignore[arg-type,return-value]
    made.inputs = {"orders": topic("orders"), "users": table_of(topic("users"))}
    made.outputs = (topic("out"), topic("out.bad"))
    made.look()
    return made


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def work(*queries: Running) -> Any:
    orders, out = columns(id=LongType(), total=DoubleType()), columns(id=LongType(), total=DoubleType(), __x=LongType())
    sources = {"id": [("orders", "id", True)], "total": [("orders", "total", False), ("users", "name", False)]}
    plan = QueryPlan(inputs={"orders": orders}, output=out, columns=sources)
    plans = {query.name: plan for query in queries}
    return SimpleNamespace(running=list(queries), plans=plans, settings=SimpleNamespace(bootstrap_servers=SERVERS))


def check_shape(event: dict[str, Any]) -> None:
    """What OpenLineage.json 2-0-2 requires of a run event and its facets."""
    assert event["eventType"] in KINDS
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert re.match(r"https://", event["producer"])
    assert event["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    assert uuid.UUID(event["run"]["runId"])
    assert event["job"]["namespace"]
    datasets = [*event["inputs"], *event["outputs"]]
    assert all(dataset["namespace"] and dataset["name"] for dataset in datasets)
    holders = [event["run"], event["job"], *datasets]
    facets = [
        part
        for holder in holders
        for name in ("facets", "inputFacets", "outputFacets")
        for part in holder.get(name, {}).values()
    ]
    assert facets
    for facet in facets:
        assert re.match(r"https://", facet["_producer"])
        assert re.match(r"https://", facet["_schemaURL"])


def test_a_run_from_start_to_end() -> None:
    events: list[dict[str, Any]] = []
    clock = Clock()
    reporter = LineageReporter(events.append, clock, "4.3.0")
    run = work(running(), running("shop/orders~orders.bad"))
    reporter(run)
    reporter(run)
    clock.now = 61.0
    reporter(run)
    reporter.end(run)
    assert [event["eventType"] for event in events] == ["START"] * 2 + ["RUNNING"] * 2 + ["COMPLETE"] * 2
    assert len({event["run"]["runId"] for event in events}) == 2, "a run for each query"
    for event in events:
        check_shape(event)
    first = events[0]
    assert first["job"]["name"] == "shop.totals"
    assert first["inputs"][0]["facets"]["schema"]["fields"][1] == {"name": "total", "type": "double"}
    assert first["inputs"][0]["inputFacets"]["ottla_offsets"]["partitions"] == {"0": 7}
    assert first["inputs"][1]["inputFacets"] == {}
    assert [output["name"] for output in first["outputs"]] == ["out", "out.bad"]
    out = first["outputs"][0]["facets"]
    assert [field["name"] for field in out["schema"]["fields"]] == ["id", "total"]
    fields = out["columnLineage"]["fields"]
    assert fields["id"]["inputFields"] == [
        {"namespace": "kafka://log:9092", "name": "orders", "field": "id",
         "transformations": [{"type": "DIRECT", "subtype": "IDENTITY", "description": "", "masking": False}]}
    ]  # fmt: skip
    assert [(one["name"], one["field"]) for one in fields["total"]["inputFields"]] == [
        ("orders", "total"),
        ("users", "name"),
    ]
    assert first["run"]["facets"]["ottla_progress"]["lag"] == 2


def test_a_failure_names_its_step_and_ends_the_others() -> None:
    events: list[dict[str, Any]] = []
    reporter = LineageReporter(events.append, Clock(), "4.3.0")
    run = work(running(), running("shop/large"))
    reporter(run)
    reporter.end(run, "step totals: bad record: orders-0 offset 3: not json")
    ends = {event["job"]["name"]: event for event in events[2:]}
    assert {name: event["eventType"] for name, event in ends.items()} == {"shop.totals": "FAIL", "shop.large": "ABORT"}
    error = ends["shop.totals"]["run"]["facets"]["errorMessage"]
    assert error["message"] == "step totals: bad record: orders-0 offset 3: not json"
    assert error["programmingLanguage"]
    check_shape(ends["shop.totals"])
    assert "errorMessage" not in ends["shop.large"]["run"]["facets"]


def test_events_into_a_file(tmp_path: Any) -> None:
    path = tmp_path / "events.jsonl"
    events = LineageQueue(lineage_writer(f"file:{path}", {}))
    events.send({"eventType": "START"})
    events.send({"eventType": "COMPLETE"})
    events.close()
    assert [json.loads(line)["eventType"] for line in path.read_text().splitlines()] == ["START", "COMPLETE"]
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(UserError, match=r"lineage goes to http\(s\)://HOST/api/v1/lineage, file:PATH or topic:NAME"):
        lineage_writer("ftp://host", {})


def test_events_to_an_endpoint_and_an_endpoint_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[str | None, dict[str, Any]]] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append((self.headers["Authorization"], body))
            self.send_response(201 if body["n"] else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    monkeypatch.setenv(TOKEN, "secret")
    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        events = LineageQueue(lineage_writer(f"http://127.0.0.1:{server.server_port}/api/v1/lineage", {}))
        for number in (1, 0, 2):
            events.send({"n": number})
        events.close()
        server.shutdown()
        thread.join()
    assert received == [("Bearer secret", {"n": number}) for number in (1, 0, 2)]
    assert events.lost == 1, "an event that is refused is lost, and the next event is sent"


def test_a_full_queue_loses_events_and_never_waits() -> None:
    begun, released = threading.Event(), threading.Event()

    def write(_: bytes) -> None:
        begun.set()
        released.wait(60)

    events = LineageQueue(write)
    events.send({})
    assert begun.wait(60)
    for _ in range(MOST_QUEUED + 3):
        events.send({})
    assert events.lost == 3
    released.set()
    events.close()


def test_events_into_a_topic() -> None:
    with Broker() as broker:
        name = broker.topic("lineage")
        events = LineageQueue(lineage_writer(f"topic:{name}", {"bootstrap.servers": broker.bootstrap_servers}))
        events.send({"eventType": "START"})
        events.close()
        assert [record.value for record in broker.records(name)] == [{"eventType": "START"}]
