"""The processors of joins with tables on random histories, beside a model that takes one record at a time. No Spark runs.

Spark's own tester drives them as a query does: by batch, and within a batch by key.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from ottla.pipelines import keyed_state
from tests.pipelines import table_model
from tests.pipelines.table_model import Record, Updates

HISTORIES = 60


class Stage:
    """One transformWithState of a plan: rows of a batch in, grouped by `key`, rows out."""

    def __init__(self, processor):
        self._tester = TwsTester(processor)

    def batch(self, rows: Iterable[Row]) -> list[Row]:
        groups: dict[str, list[Row]] = {}
        for row in rows:
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


def test_a_value_is_read_and_written_once_for_all_rows_of_a_key():
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
