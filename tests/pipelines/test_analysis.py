"""`ottla pipeline validate`: each mistake is one sentence, and nothing is read or written."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.pipelines.analysis import problems
from ottla.pipelines.build import RunSettings
from ottla.pipelines.joins import join
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import changes_of, delta, files, iceberg, parquet, spark_table, table_of, topic, view

ORDERS = topic("orders", value="json", schema="id long, page string, total double")
PAGES = topic("pages", value="json", schema="page string, title string")
OUT = topic("out", value="json", key="id")
NOWHERE = RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints="")
"""No broker: an analysis asks none."""


def analysed(spark, function, writes=OUT, **more):
    made = Pipeline("shop")
    reads = more.pop("reads", {"orders": ORDERS})
    made.step(reads=reads, writes=writes, **more)(function)
    return problems(spark, made, NOWHERE)


def test_a_pipeline_without_a_mistake(spark):
    assert analysed(spark, lambda orders: orders) == []
    reads = {"orders": ORDERS, "pages": table_of(PAGES)}
    assert analysed(spark, lambda orders, pages: orders.join(pages, "page").select("id", "title"), reads=reads) == []
    by_page = view("totals", "tables/totals", keys=["page"])
    count = lambda orders: orders.groupBy("page").count()  # noqa: E731 - the name of a step does not matter here
    assert analysed(spark, count, by_page, output_mode="update") == []
    assert analysed(spark, count, delta("tables/counts"), output_mode="complete") == []


def test_tables_as_state_and_outputs_of_all_kinds(spark):
    letters = topic("pages", value="json", schema="page string, title string", dead_letter="pages.bad")
    reads = {"orders": ORDERS, "pages": changes_of(letters)}

    def joined(orders, pages):
        return join(orders, pages, on="page").select("id", "page", "title")

    catalog = {"type": "sql", "uri": "sqlite:///nowhere.db"}
    outputs = [
        iceberg("shop.seen", catalog=catalog, keys=["id"], partition_by=["page"]),
        files("tables/seen", format="json", partition_by=["page"]),
        spark_table("parquet", {"path": "tables/seen"}),
        delta("tables/seen", keys=["id"]),
    ]
    for output in outputs:
        assert analysed(spark, joined, output, reads=reads) == []
    (problem,) = analysed(spark, joined, iceberg("shop.seen", catalog=catalog, keys=["number"]), reads=reads)
    assert "the key 'number' of iceberg:shop.seen is not a column" in problem
    (problem,) = analysed(spark, joined, files("tables/seen", partition_by=["day"]), reads=reads)
    assert "the partition column 'day' of parquet:tables/seen is not a column" in problem


def no_column(orders):
    return orders.select("id", "totl")


def wrong_type(orders):
    return orders.selectExpr("id", "array(total) + 1 as more")


def whole(orders):
    return orders


def counted(orders):
    return orders.groupBy("id").count()


def ordered(orders):
    return orders.orderBy("id")


def nothing(orders):
    return None


def several(orders):
    return {"a": orders, "b": orders}


def raising(orders):
    raise ValueError("no such shop")


@pytest.mark.parametrize(
    ("function", "writes", "more", "words"),
    [
        (no_column, OUT, {}, r"step no-column: there is no column totl"),
        (wrong_type, OUT, {}, r"step wrong-type: .*DATATYPE_MISMATCH"),
        (
            whole,
            topic("out", value="json", key="number"),
            {},
            r"the key 'number' of topic:out is not a column .* id, page",
        ),
        (whole, view("v", "tables/v", keys=["number"]), {}, r"the key 'number' of .* is not a column"),
        (whole, delta("tables/d", keys=["number"]), {}, r"the key 'number' of delta:tables/d is not a column"),
        (whole, parquet("tables/p", partition_by=["day"]), {}, r"the partition column 'day' of .* is not a column"),
        (counted, OUT, {"output_mode": "complete"}, "output_mode complete would write the whole result .*: use update"),
        (
            counted,
            view("v", "tables/v", keys=["page"]),
            {"output_mode": "complete"},
            "output_mode complete would write the whole result into the topic v .*: use update",
        ),
        (counted, OUT, {}, r"step counted: .*(append|Append)"),
        (ordered, OUT, {}, r"step ordered: .*[Ss]ort"),
        (nothing, OUT, {}, "the function gives a NoneType, not a DataFrame"),
        (several, OUT, {}, r"the function gives \['a', 'b'\], it is declared to write \[''\]"),
        (raising, OUT, {}, "step raising: ValueError: no such shop"),
    ],
)
def test_each_mistake_is_one_sentence(spark, function, writes, more, words):
    (problem,) = analysed(spark, function, writes, **more)
    import re

    assert re.search(words, problem), problem
    assert len(problem.splitlines()) == 1


def test_a_join_of_tables_is_no_stream(spark):
    reads = {"left": table_of(PAGES), "right": table_of(topic("titles", value="json", schema="page string"))}
    (problem,) = analysed(spark, lambda left, right: left.join(right, "page"), topic("out", value="json"), reads=reads)
    assert "no input is a stream" in problem


def test_a_table_that_a_step_before_makes_is_not_missing(spark, tmp_path):
    made = Pipeline("shop")
    made.step(reads={"orders": ORDERS}, writes=delta(str(tmp_path / "made")))(whole)

    def reader(orders, table):
        return orders.join(table, "id")

    made.step(reads={"orders": ORDERS, "table": delta(str(tmp_path / "made"))}, writes=OUT)(reader)
    assert problems(spark, made, NOWHERE) == []
    reads = {"orders": ORDERS, "table": delta(str(tmp_path / "missing"))}
    (problem,) = analysed(spark, reader, reads=reads)
    assert "missing" in problem


def test_a_table_of_a_spark_format_that_a_step_before_makes_is_not_missing(spark, tmp_path):
    table = spark_table("parquet", {"path": str(tmp_path / "made")})
    made = Pipeline("shop")
    made.step(reads={"orders": ORDERS}, writes=table)(whole)

    def reader(orders, table):
        return orders.join(table, "id")

    made.step(reads={"orders": ORDERS, "table": table}, writes=OUT)(reader)
    assert problems(spark, made, NOWHERE) == []
    (problem,) = analysed(spark, reader, reads={"orders": ORDERS, "table": table})
    assert "PATH_NOT_FOUND" in problem


def test_validate_reports_every_step(spark, tmp_path, monkeypatch):
    file = tmp_path / "shop.py"
    file.write_text(
        "from ottla.pipelines import Pipeline, topic\n"
        "p = Pipeline('shop')\n"
        "a = topic('a', value='json', schema='id long')\n"
        "@p.step(reads={'rows': a}, writes=topic('b', value='json'))\n"
        "def one(rows):\n    return rows.select('x')\n"
        "@p.step(reads={'rows': a}, writes=topic('c', value='json'))\n"
        "def two(rows):\n    return rows.select('y')\n"
    )

    class Kept:
        """The shared session, which this command must not end."""

        def __getattr__(self, name):
            return getattr(spark, name)

        def stop(self):
            pass

    monkeypatch.setattr("ottla.pipelines.reset.local_session", lambda _settings: Kept())
    done = CliRunner().invoke(ottla, ["pipeline", "validate", str(file)])
    assert done.exit_code == 1
    assert [line.strip().split(":")[0] for line in done.output.splitlines()] == ["ottla", "step two"]
    assert CliRunner().invoke(ottla, ["pipeline", "validate", str(file), "--no-plans"]).exit_code == 0


def test_validate_asks_a_broker_for_topics(ottla_server, tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(
        "from ottla.pipelines import Pipeline, topic\n"
        "p = Pipeline('shop')\n"
        "@p.step(reads={'rows': topic('no-such-topic')}, writes=topic('b'))\n"
        "def one(rows):\n    return rows\n"
    )
    done = CliRunner().invoke(
        ottla, ["pipeline", "validate", str(file), "--no-plans", "-b", ottla_server.bootstrap_servers]
    )
    assert done.exit_code == 1
    assert "step one reads the topic 'no-such-topic', which does not exist" in done.output
