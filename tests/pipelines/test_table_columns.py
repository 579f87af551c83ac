"""Columns of output tables: added by `evolve`, refused by one sentence without it, and never narrowed."""

from __future__ import annotations

import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.connect.sinks.delta import read_delta
from ottla.model.user_error import UserError
from ottla.pipelines import delta, files, iceberg, sql_table, view
from ottla.pipelines.outputs.batch import table_format
from tests.pipelines import attempts

MORE = pa.schema([*attempts.SCHEMA, ("more", pa.float64())])
BOTH = [{"n": 1, "word": "w1"}, {"n": 2, "word": "w0", "more": 2.5}]


class Table:
    """One output of each kind, written without Spark."""

    def __init__(self, kind, folder):
        self.kind, self.path = kind, f"{folder}/table"
        self.catalog = {"uri": f"sqlite:///{folder}/c.db", "warehouse": f"{folder}/lake", "type": "sql"}
        self.options = {
            "delta": {"path": self.path},
            "files": {"path": self.path, "format": "parquet"},
            "sql": {"url": f"sqlite:///{folder}/t.db", "dbtable": "rows"},
            "iceberg": {"table": "shop.rows", **{f"catalog.{name}": text for name, text in self.catalog.items()}},
        }[kind]

    def write(self, version, row, schema=attempts.SCHEMA, **options):
        batch = pa.RecordBatch.from_pylist([row], schema)
        attempts.run(self.kind, version, [batch], schema=schema, **self.options, **options)

    def rows(self):
        if self.kind == "delta":
            table = read_delta(self.path)[0].to_pylist()
        elif self.kind == "files":
            table = pq.ParquetDataset(self.path, schema=MORE).read().to_pylist()
        elif self.kind == "sql":
            with sqlite3.connect(self.options["url"].removeprefix("sqlite:///")) as connection:
                cursor = connection.execute("select * from rows")
                table = [dict(zip([name for name, *_ in cursor.description], row, strict=True)) for row in cursor]
        else:
            from pyiceberg.catalog import load_catalog

            table = load_catalog("ottla", **self.catalog).load_table("shop.rows").scan().to_arrow().to_pylist()
        kept = [{name: value for name, value in row.items() if value is not None} for row in table]
        return sorted(kept, key=lambda row: row["n"])


@pytest.fixture(params=["delta", "iceberg", "files", "sql"])
def table(request, tmp_path):
    return Table(request.param, tmp_path)


def test_a_new_column_needs_the_option(table):
    table.write(0, BOTH[0])
    with pytest.raises(UserError, match=r"does not have the column more: add evolve=True to the output") as refused:
        table.write(1, BOTH[1], MORE)
    assert len(str(refused.value).splitlines()) == 1
    assert table.rows() == BOTH[:1]
    table.write(1, BOTH[1], MORE, evolve="true")
    assert table.rows() == BOTH
    # Rows without the column still fit, and the option may stay.
    table.write(2, {"n": 3, "word": "w3"})
    table.write(3, {"n": 4, "word": "w4"}, evolve="true")
    assert [row["n"] for row in table.rows()] == [1, 2, 3, 4]


@pytest.mark.parametrize("evolve", ["true", "false"])
def test_a_column_is_never_narrowed(table, evolve):
    if table.kind == "sql":
        pytest.skip("a database casts by rules of its own, and refuses what does not fit")
    narrow = pa.schema([("n", pa.int64()), ("more", pa.float32())])
    wide = pa.schema([("n", pa.int64()), ("more", pa.float64())])
    table.write(0, {"n": 1, "more": 0.5}, narrow)
    if (table.kind, evolve) == ("iceberg", "true"):  # the table's column becomes the wider one
        table.write(1, {"n": 2, "more": 0.1}, wide, evolve=evolve)
        assert table.rows() == [{"n": 1, "more": 0.5}, {"n": 2, "more": 0.1}]
        return
    with pytest.raises(
        UserError, match=r"the column more of .* is float.* and the rows have double.*: cast the column"
    ):
        table.write(1, {"n": 2, "more": 0.1}, wide, evolve=evolve)
    assert table.rows() == [{"n": 1, "more": 0.5}]


def test_names_that_differ_in_case_only_are_refused(tmp_path):
    table = Table("delta", tmp_path)
    table.write(0, BOTH[0])
    with pytest.raises(UserError, match="has the column word, the rows have Word: rename it in the step"):
        table.write(1, {"n": 1, "Word": "x"}, pa.schema([("n", pa.int64()), ("Word", pa.string())]), evolve="true")


def test_two_outputs_with_the_same_work_add_a_column_once(tmp_path):
    """The second driver of a batch finds the column and the version."""
    table = Table("sql", tmp_path)
    table.write(0, BOTH[0])
    first, second = (attempts.writer("sql", 1, MORE, evolve="true", **table.options) for _ in range(2))
    batch = pa.RecordBatch.from_pylist([BOTH[1]], MORE)
    staged = [attempts.stage(made, batch) for made in (first, second)]
    first.commit(staged[:1])
    second.commit(staged[1:])
    assert table.rows() == BOTH


def test_the_option_reaches_every_output():
    catalog = {"uri": "sqlite:///c.db"}
    outputs = [delta("t", evolve=True), files("t", evolve=True), iceberg("a.b", catalog=catalog, evolve=True)]
    outputs += [sql_table("sqlite:///t.db", "t", evolve=True), view("v", "t", keys=["n"], evolve=True).delta]
    assert [table_format(port)[1].get("evolve") for port in outputs] == ["true"] * 5
    assert "evolve" not in table_format(delta("t"))[1]
