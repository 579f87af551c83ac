"""The processors of joins with tables on random histories, beside a model that takes one record at a time. No Spark runs.

Spark's own tester drives them as a query does: by batch, and within a batch by key.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from ottla.model.user_error import UserError
from ottla.pipelines import key_pages, keyed_state
from ottla.pipelines.key_pages import Pages, page_number
from tests.pipelines import table_model
from tests.pipelines.table_model import Record, Updates

HISTORIES = 60


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    """So that pages split within a short history."""
    monkeypatch.setattr(key_pages, "PAGE_BYTES", 12)


class Stage:
    """One transformWithState of a plan: rows of a batch in, grouped by bucket or key, rows out."""

    def __init__(self, processor):
        self._tester = TwsTester(processor)
        self._in_buckets = isinstance(processor, keyed_state.InBuckets)

    def batch(self, rows: Iterable[Row]) -> list[Row]:
        groups: dict[int | str, list[Row]] = {}
        for row in rows:
            if self._in_buckets:
                bucket = zlib.crc32(row.key.encode()[::-1]) % 2
                groups.setdefault(bucket, []).append(Row(bucket=bucket, **row.asDict()))
            else:
                groups.setdefault(row.key, []).append(row)
        return [out for key, group in groups.items() for out in self._tester.test(key=key, input=group)]


def as_row(record: Record) -> Row:
    return Row(
        key=record.key, side=record.side, at=record.at, part=record.part, offset=record.offset, payload=record.value
    )


def histories(deletes: tuple[float, float] = (0.3, 0.3)):
    for seed in range(HISTORIES):
        draw = random.Random(seed)
        records = table_model.history(draw, draw.randrange(2, 40), deletes=deletes)
        yield seed, records, table_model.batches(draw, list(records))


@pytest.mark.parametrize("emits", [False, True])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_with_a_table(how, emits):
    for seed, records, batches in histories(deletes=(0.3, 0.0)):
        stage = Stage(keyed_state.StreamTableJoin(keep_unmatched=how == "left", emit_on_table_change=emits))
        results = [(row.left, row.right) for batch in batches for row in stage.batch(map(as_row, batch))]
        expected = table_model.stream_table(records, how=how, emits=emits)
        keys = {record.value: record.key for record in records}
        updates: Updates = {}
        for left, right in results:
            updates.setdefault(keys[left], []).append((left, right))
        assert updates == expected, seed


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_two_tables(how):
    for seed, records, batches in histories():
        stage = Stage(keyed_state.TableTableJoin(keep_left=how != "inner", keep_right=how == "outer"))
        rows = [row for batch in batches for row in stage.batch(map(as_row, batch))]
        assert by_key(rows) == table_model.table_table(records, how=how), seed


@pytest.mark.parametrize("how", ["inner", "left"])
def test_two_tables_by_a_foreign_key(how):
    for seed, records, batches in histories():
        stages = [
            Stage(keyed_state.ForeignReferences()),
            Stage(keyed_state.ForeignRows(keep_left=how == "left")),
            Stage(keyed_state.InRowOrder()),
        ]
        rows = []
        for batch in batches:
            left = [Row(**as_row(one).asDict(), row_key=one.refers_to) for one in batch if one.side == 0]
            right = [
                Row(**{**as_row(one).asDict(), "side": 0}, row_key=None, leaves=False) for one in batch if one.side
            ]
            rows += stages[2].batch(stages[1].batch([*stages[0].batch(left), *right]))
        assert by_key(rows) == table_model.foreign_key(records, how=how), seed


def by_key(rows: Iterable[Row]) -> Updates:
    updates: Updates = {}
    for row in rows:
        updates.setdefault(row.key, []).append(None if row.deleted else (row.left, row.right))
    return updates


def test_a_table_follows_its_log_where_timestamps_go_back():
    """The newest row of a key is the last of its partition, and a row of the same time is there for the stream's row."""
    stage = Stage(keyed_state.StreamTableJoin(keep_unmatched=True, emit_on_table_change=False))
    rows = [
        Row(key="k", side=1, at=20, part=0, offset=0, payload="click"),
        Row(key="k", side=0, at=10, part=0, offset=8, payload="newest"),
        Row(key="k", side=0, at=20, part=0, offset=7, payload="older"),
    ]
    assert stage.batch(rows) == [Row(left="click", right="newest")]


def test_a_value_of_its_own_is_read_and_written_once_for_all_rows_of_a_key():
    """A round trip to the JVM is what a row costs: rows of a table alone need no read."""

    class Counted:
        def __init__(self):
            self.calls = []

        def get(self):
            self.calls.append("get")

        def update(self, value):
            self.calls.append(value)

    state = Counted()
    kept = keyed_state.Kept(state)
    for value in "abc":
        kept.put((value,))
        assert kept.get() == (value,)
    kept.store()
    assert state.calls == [("c",)]


class CountedMap:
    """A map of the state; each call is one round trip to the JVM."""

    def __init__(self):
        self.entries: dict[int, str] = {}
        self.calls = 0

    def getValue(self, key):
        self.calls += 1
        return (self.entries[key[0]],) if key[0] in self.entries else None

    def updateValue(self, key, value):
        self.calls += 1
        self.entries[key[0]] = value[0]

    def removeKey(self, key):
        self.calls += 1
        self.entries.pop(key[0], None)


def test_pages_are_a_map_that_grows_and_shrinks():
    for seed in range(HISTORIES):
        draw, state, model = random.Random(seed), CountedMap(), {}
        keys = [f"key {number}" for number in range(draw.choice((1, 5, 80)))]
        for _ in range(12):
            pages = Pages(state)
            for key in draw.choices(keys, k=draw.choice((0, 1, 30))):
                assert pages.get(key) == model.get(key)
                model[key] = draw.choice((None, ("x" * draw.randrange(9), draw.randrange(9))))
                pages.put(key, model[key])
            pages.store()
        newest = Pages(state)
        assert {key: newest.get(key) for key in model} == model, seed
        kept = {key: value for key, value in model.items() if value is not None}
        rows = [row for number, page in state.entries.items() if number >= 0 for row in json.loads(page).items()]
        assert {key: tuple(value) for key, value in rows} == kept, (
            "no row is left in a page that a look-up does not read"
        )
        assert len(rows) == len(kept)
        assert (
            sum(len(key) + len(value[0]) + 8 for key, value in rows)
            == json.loads(state.entries.get(-1, '{"bytes": 0}'))["bytes"]
        )


def test_a_change_costs_the_same_in_a_bucket_of_any_size(monkeypatch):
    monkeypatch.setattr(key_pages, "PAGE_BYTES", 4096)
    calls, largest = {}, {}
    for size in (100, 1_000, 20_000):
        state = CountedMap()
        pages = Pages(state)
        for number in range(size):
            pages.put(f"user-{number}", ("x" * 90,))
        pages.store()
        assert state.calls <= size / 20 + 3, "the first load reads the counts and writes each page once"
        state.calls = 0
        pages = Pages(state)
        pages.put("user-7", ("y" * 90,))
        pages.store()
        calls[size], largest[size] = state.calls, max(map(len, state.entries.values()))
    assert set(calls.values()) == {3}, "the counts and one page are read, the page is written"
    assert max(largest.values()) < 5 * 4096


def test_large_rows_have_a_page_each(monkeypatch):
    """A change of a key must not write a megabyte of each of its neighbours again."""
    monkeypatch.setattr(key_pages, "PAGE_BYTES", 4096)
    state = CountedMap()
    for number in range(20):
        pages = Pages(state)
        pages.put(f"k{number}", ("x" * 10_000,))
        pages.store()
    assert max(map(len, state.entries.values())) < 60_000


def test_a_new_page_takes_rows_of_one_page_only():
    for count in range(1, 40):
        moved = {page_number(number, count) for number in range(5000) if page_number(number, count + 1) == count}
        assert moved == {page_number(count, count)}
        same = [number for number in range(5000) if page_number(number, count + 1) != count]
        assert all(page_number(number, count) == page_number(number, count + 1) for number in same)


def test_a_state_of_another_layout_is_refused():
    state = CountedMap()
    state.entries[-1] = '{"layout": 2, "pages": 1, "bytes": 0}'
    with pytest.raises(UserError, match="has layout 2, this Ottla reads layout 1: run the Ottla that wrote"):
        Pages(state).get("k")
