"""Broken pipelines that `ottla pipeline validate` must report: each would fail, or loop, only after its start."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.model.user_error import UserError
from ottla.pipelines.analysis import problems
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Pipeline, load_pipelines
from ottla.pipelines.ports import delta, files, iceberg, sql_table, topic, view

SCHEMA = "id long, page string, total double, tags map<string, string>"
ORDERS = topic("orders", value="json", schema=SCHEMA)
OUT = topic("out", value="json", key="id")
NOWHERE = RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints="")


def whole(orders):
    return orders


def twice(orders):
    return orders.select("id", "id")


def hidden(orders):
    return orders.selectExpr("id as _id", "page as _page")


def empty(orders):
    return orders.selectExpr("id", "null as page")


def interval(orders):
    return orders.selectExpr("id", "make_interval(1) as pause")


def by_tags(orders):
    return orders.select("id", "tags")


def only_page(orders):
    return orders.select("page")


def reading(**options):
    starting = options.pop("starting", "earliest")
    name = options.pop("name", "orders")
    letters = options.pop("dead_letter", None)
    return {"orders": topic(name, value="json", schema=SCHEMA, starting=starting, dead_letter=letters, options=options)}


BROKEN = {
    "a start that is no offset": (whole, OUT, {"reads": reading(starting="latst")}, "startingOffsets .*latst"),
    "a bound that is no number": (whole, OUT, {"reads": reading(maxOffsetsPerTrigger="many")}, "maxoffsetspertrigger"),
    "an option of a batch read": (whole, OUT, {"reads": reading(endingOffsets="latest")}, "ending offsets"),
    "dead letters into the input": (whole, OUT, {"reads": reading(dead_letter="orders")}, "dead letters .* own input"),
    "an input that no topic can be": (whole, OUT, {"reads": reading(name="my orders")}, "my orders"),
    "an output that no topic can be": (whole, topic("a/b", value="json"), {}, "a/b"),
    "dead letters that no topic can be": (whole, OUT, {"reads": reading(dead_letter="bad ones")}, "bad ones"),
    "no partitions": (whole, topic("out", value="json", partitions=0), {}, "partitions"),
    "a trigger that is no time": (whole, OUT, {"trigger": "5 secs"}, "5 secs"),
    "an option of a write": (whole, topic("out", value="json", options={"onMarkersLost": "skip"}), {}, "onMarkersLost"),
    "a column twice, into a table": (twice, delta("tables/d"), {}, "the column 'id' .*twice"),
    "a column twice, into a topic": (twice, OUT, {}, "the column 'id' .*twice"),
    "names that differ by case": (lambda orders: orders.selectExpr("id", "page as ID"), delta("tables/d"), {}, "twice"),
    "no column, into a table": (hidden, delta("tables/d"), {}, "no column"),
    "no column, into a topic": (hidden, topic("out", value="json"), {}, "no column"),
    "a column without a type": (empty, delta("tables/d"), {}, "'page'.*type"),
    "a type that tables lack": (interval, delta("tables/d"), {}, "pause|interval"),
    "a key that cannot be compared": (by_tags, delta("tables/d", keys=["tags"]), {}, "tags|map"),
    "a map in CSV": (by_tags, files("tables/f", format="csv"), {}, "CSV has no place for the column tags"),
    "only partition columns": (only_page, files("tables/f", partition_by=["page"]), {}, "beside those of partition_by"),
    "only partition columns, Delta": (
        only_page, delta("tables/d", partition_by=["page"]), {}, "beside those of partition_by",
    ),
    "a table without a namespace": (whole, iceberg("seen", catalog={"type": "sql", "uri": "sqlite:///n.db"}), {}, "NAMESPACE.NAME"),
    "a location that nothing opens": (whole, delta("ftp://host/d"), {}, "ftp"),
    "a database that is none": (whole, sql_table("mysql://db/x", "t"), {}, "mysql"),
    "a name that PostgreSQL cuts": (
        lambda orders: orders.selectExpr(f"id as {'x' * 64}"), sql_table("postgresql://db/x", "t"), {}, "64 bytes",
    ),
    "a view without its key": (only_page, view("v", "tables/v", keys=["id"]), {}, "the key 'id'"),
}  # fmt: skip


def analysed(spark, function, writes, reads=None, **more):
    made = Pipeline("shop")
    made.step(reads=reads or {"orders": ORDERS}, writes=writes, **more)(function)
    return problems(spark, made, NOWHERE)


@pytest.mark.parametrize("name", BROKEN)
def test_validate_reports(spark, name):
    function, writes, more, words = BROKEN[name]
    found = analysed(spark, function, writes, **more)
    assert len(found) == 1, f"{name} passes"
    assert re.search(words, found[0]), found[0]
    assert len(found[0].splitlines()) == 1


def test_a_pipeline_without_steps_is_reported(spark):
    (problem,) = problems(spark, Pipeline("shop"), NOWHERE)
    assert "shop has no steps" in problem


def test_names_of_pipelines_in_a_file(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text("from ottla.pipelines import Pipeline\np = shop = Pipeline('shop')\n")
    assert len(load_pipelines(str(file))) == 1, "two names of one pipeline"
    file.write_text("from ottla.pipelines import Pipeline\np, q = Pipeline('shop'), Pipeline('shop')\n")
    with pytest.raises(UserError, match="two pipelines named shop"):
        load_pipelines(str(file))


def test_every_missing_topic_is_reported(ottla_server, tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(
        "from ottla.pipelines import Pipeline, topic\n"
        "p = Pipeline('shop')\n"
        "@p.step(reads={'rows': topic('no-such-topic')}, writes=topic('b'))\n"
        "def first(rows):\n    return rows\n"
        "@p.step(reads={'rows': topic('nor-this')}, writes=topic('c'))\n"
        "def second(rows):\n    return rows\n"
    )
    words = ["pipeline", "validate", str(file), "--no-plans", "-b", ottla_server.bootstrap_servers]
    done = CliRunner().invoke(ottla, words)
    assert done.exit_code == 1
    assert "no-such-topic" in done.output
    assert "nor-this" in done.output
