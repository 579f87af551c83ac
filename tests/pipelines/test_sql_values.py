"""Values that PostgreSQL stores under types of its own, or refuses, and what a write without a marker leaves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from ottla.connect.sinks.base import Work
from ottla.model.user_error import UserError
from ottla.pipelines.outputs.sql import SqlOutput
from tests.pipelines.attempts import SCHEMA, Attempt, batch, stage
from tests.pipelines.attempts import output as make_output
from tests.pipelines.test_sql_output import attempt, staged_in
from tests.support.sql_databases import query

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def written(uri: str, rows: pa.Table, keys: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """What the table `rows` has after one batch."""
    output = SqlOutput(uri=uri, table="rows", keys=tuple(keys))
    output.prepare(rows.schema)
    assert output.commit([output.stage(iter(rows.to_batches()), attempt(0))], Work(application="query", version=0))
    return query(uri, "select * from rows")


def test_text_becomes_uuid_json_enum_and_arrays(postgresql_uri):
    query(postgresql_uri, "create type color as enum ('red', 'blue')")
    query(postgresql_uri, "create table rows (id uuid primary key, doc jsonb, color color, places int[], words text[])")
    first, second = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12"
    rows = pa.table({
        "id": [first, second, second.lower()], "doc": [{"a": [1, None]}, None, {"a": []}], "color": ["red", None, "blue"],
        "places": [[3, None, 1], [], None], "words": [["x", 'y"', "a,b"], None, []],
    })  # fmt: skip
    assert sorted(written(postgresql_uri, rows, ["id"]), key=str) == [
        (UUID(first), '{"a": [1, null]}', "red", [3, None, 1], ["x", 'y"', "a,b"]),
        (UUID(second), '{"a": []}', "blue", None, []),
    ], "two spellings of a UUID are one key"


def test_text_is_still_no_number(postgresql_uri):
    query(postgresql_uri, "create table rows (id bigint)")
    with pytest.raises(UserError, match=r'"id" is of type bigint but expression is of type text'):
        written(postgresql_uri, pa.table({"id": ["5"]}))


def test_values_at_their_limits_come_back(postgresql_uri):
    rows = pa.table({
        "number": pa.array([Decimal("9" * 20 + "." + "9" * 18), Decimal("0E-18"), None], pa.decimal128(38, 18)),
        "at": pa.array([datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "plain": pa.array([datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2026, 3, 29, 2, 30), None], pa.timestamp("us")),
        "text": ["é😀" * 1_000_000, "", None], "raw": [b"\x00\xff", b"", None],
    })  # fmt: skip
    written(postgresql_uri, rows)
    columns = "number::text, (at at time zone 'UTC')::text, plain::text, md5(text), raw"
    there = query(postgresql_uri, f"select {columns} from rows order by plain desc nulls last")
    assert [row[:3] for row in there] == [
        ("9" * 20 + "." + "9" * 18, "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
        ("0." + "0" * 18, "2026-03-29 01:30:00.000001", "2026-03-29 02:30:00"),
        (None, None, None),
    ]
    assert [row[4] for row in there] == [b"\x00\xff", b"", None]
    assert query(postgresql_uri, "select length(text) from rows order by 1 nulls last") == [(0,), (2_000_000,), (None,)]


def test_nested_bytes_are_base64_as_in_spark(postgresql_uri):
    assert written(postgresql_uri, pa.table({"deep": [{"raw": b"\x00\xff"}]})) == [('{"raw": "AP8="}',)]


def test_the_character_nul_names_its_column(postgresql_uri):
    rows = pa.table({"plain": ["fine", "fine"], "text": ["fine", "x\0y"], "raw": [b"\0", None]})
    with pytest.raises(
        UserError, match=r"a value of text has the character NUL, .* Remove the character \(replace\(text, "
    ):
        written(postgresql_uri, rows)
    assert staged_in(postgresql_uri) == [], "the copy is rolled back"


def test_a_write_without_a_marker_sweeps_its_own_losers(postgresql_uri, monkeypatch):
    """No later batch has the application of such a write, so nothing else would drop the tables of its losers."""
    from ottla.pipelines.outputs.writer import TableWriter

    monkeypatch.setattr("pyspark.TaskContext.get", Attempt)
    made = TableWriter(make_output("sql", url=postgresql_uri, dbtable="rows"), SCHEMA, None)
    stage(made, batch(1))
    chosen = stage(made, batch(1))
    assert len(staged_in(postgresql_uri)) == 2
    made.commit([chosen])
    assert (query(postgresql_uri, "select n from rows"), staged_in(postgresql_uri)) == ([(1,)], [])


@pytest.mark.parametrize(
    ("table", "column", "words"),
    [
        ("rows", "x" * 64, "the column x{64} of the table rows has 64 bytes, and postgresql cuts names after 63"),
        ("rows", "é" * 32, "the column é{32} of the table rows has 64 bytes"),
        ("shop." + "y" * 64, "n", "the name y{64} of the table shop.y{64} has 64 bytes"),
    ],
)
def test_a_name_that_postgresql_would_cut_is_refused_without_a_connection(table, column, words):
    output = make_output("sql", url="postgresql://nobody@127.0.0.1:9/nowhere", dbtable=table)
    with pytest.raises(UserError, match=words):
        output.prepare(pa.schema([(column, pa.int64())]))


def test_a_name_of_63_bytes_is_written(postgresql_uri):
    assert written(postgresql_uri, pa.table({"x" * 63: [1]})) == [(1,)]


def test_a_sink_refuses_a_name_that_postgresql_would_cut(postgresql_uri):
    from ottla.connect.sinks.base import Work
    from ottla.connect.sinks.sql import SqlSink

    sink = SqlSink(postgresql_uri, "rows")
    with pytest.raises(UserError, match="has 64 bytes"):
        sink.put(pa.table({"x" * 64: [1]}), Work(application="c", version=0))
    sink.close()
