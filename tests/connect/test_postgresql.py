"""The SQL source and sink on a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from ottla.connect.databases import connect_sql
from ottla.connect.sinks.base import DELETED, Work
from ottla.connect.sinks.sql import SqlSink
from ottla.connect.sources.sql import read_after, read_table
from ottla.model.user_error import UserError

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture
def uri(postgresql_uri) -> str:
    return postgresql_uri


def test_rows_and_their_marker_are_one_transaction(uri):
    sink = SqlSink(uri, "people", insert_mode="upsert", pk_fields=["id"])
    at = datetime(2026, 11, 16, tzinfo=UTC)
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "name": ["ada", "bob", "eve"],
            "score": [1.5, None, 3.0],
            "at": [at] * 3,
            "ok": [True, False, None],
        }
    )
    assert sink.put(rows, Work(application="a", version=4))
    assert not sink.put(rows, Work(application="a", version=4))
    changed = pa.table({"id": [2, 3, 3], "name": ["BOB", "x", "EVE"], DELETED: [False, False, False]})
    assert sink.put(changed, Work(application="a", version=5))
    assert sink.put(pa.table({"id": [1], "name": ["ada"], DELETED: [True]}), Work(application="a", version=6))
    assert sink.reached("a") == 6
    found = sorted((row["id"], row["name"], row["score"]) for row in read_table(uri, "people").to_pylist())
    assert found == [(2, "BOB", None), (3, "EVE", 3.0)]
    with pytest.raises(UserError, match="was not written"):
        sink.put(pa.table({"id": [9], "nowhere": ["x"]}), Work(application="a", version=7))
    assert sink.reached("a") == 6, "nothing half-written"
    sink.close()


def test_incrementing_and_timestamp_modes(uri):
    sink = SqlSink(uri, "events")
    times = [datetime(2026, 1, 1, 0, 0, n // 2, tzinfo=UTC) for n in range(10)]
    sink.put(pa.table({"id": list(range(10)), "at": times}), Work(application="e", version=0))
    sink.close()
    first, place = read_after(uri, "events", "incrementing", incrementing="id", limit=6)
    assert first.column("id").to_pylist() == list(range(6))
    rest, place = read_after(uri, "events", "incrementing", incrementing="id", after=place)
    assert rest.column("id").to_pylist() == [6, 7, 8, 9]
    nothing, again = read_after(uri, "events", "incrementing", incrementing="id", after=place)
    assert (nothing.num_rows, again) == (0, place)
    with pytest.raises(UserError, match="cannot be read"):
        read_table(uri, "no_such_table")


def test_an_unreachable_database_is_one_clear_error():
    with pytest.raises(UserError, match="cannot be opened"):
        SqlSink("postgresql://x@127.0.0.1:9/x", "t")


def test_types_schemas_and_columns_that_come_later(uri):
    """Decimals, times and dates keep their types; a table may stand in a schema; a new column is added."""
    connection, _ = connect_sql(uri)
    with connection.cursor() as cursor:
        cursor.execute("create schema if not exists odd")
        connection.commit()
    first = pa.table({
        "id": [1], "price": pa.array([Decimal("12345678901234.5678")], pa.decimal128(20, 4)), "day": [date(2026, 11, 16)],
        "at": pa.array([datetime(2026, 11, 16, 10, tzinfo=UTC)], pa.timestamp("us", "UTC")), "hour": [time(10, 30)],
        "deep": [{"a": [1]}], "raw": [b"\x00\xff"], "ok": [True], "later": pa.array([None], pa.null()),
    })  # fmt: skip
    sink = SqlSink(uri, 'odd."or.der"', insert_mode="upsert", pk_fields=["id"], auto_evolve=True)
    try:
        assert sink.put(first, Work(application="odd", version=0))
        assert sink.put(
            pa.table({"id": [2, 3], "later": [7, 8], "new é": ["x", None]}), Work(application="odd", version=1)
        )
        gone = pa.table({"id": [2], "later": pa.array([None], pa.null())})
        assert sink.put(gone, Work(application="odd", version=2))
    finally:
        sink.close()
    with connection.cursor() as cursor:
        cursor.execute('select id, price::text, day::text, hour::text, later, "new é" from odd."or.der" order by id')
        assert cursor.fetchall() == [
            (1, "12345678901234.5678", "2026-11-16", "10:30:00", None, None), (2, None, None, None, None, "x"),
            (3, None, None, None, 8, None),
        ]  # fmt: skip
        cursor.execute(
            "select data_type from information_schema.columns where table_name = 'or.der' and column_name = 'price'"
        )
        assert cursor.fetchone() == ("numeric",)
    connection.close()


def test_rows_of_one_time_across_the_limit(uri):
    connection, _ = connect_sql(uri)
    with connection.cursor() as cursor:
        cursor.execute("create table same_time (id int, at timestamptz)")
        cursor.execute(
            "insert into same_time select n, '2026-01-01'::timestamptz + (n / 7) * interval '1 hour' from generate_series(0, 20) n"
        )
        cursor.execute("insert into same_time values (99, null)")
        connection.commit()
    connection.close()
    place, found = None, []
    while True:
        rows, place = read_after(uri, "same_time", "timestamp", timestamp="at", after=place, limit=3)
        if not rows.num_rows:
            break
        found += rows.column("id").to_pylist()
    assert sorted(found) == list(range(21))
