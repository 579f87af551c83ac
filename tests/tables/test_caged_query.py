"""SQL of the console's users: no query takes the console's memory, and no answer is larger than a page."""

from __future__ import annotations

import resource
from typing import Any

import pyarrow as pa
import pytest

from ottla.tables import caged_query, query
from ottla.tables.caged_query import CagedResult, QueryLimits, run_caged
from ottla.tables.topics import TableError
from ottla.testing import Broker

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
LIMITS = QueryLimits(seconds=20.0)


def asked(text: str, client: dict[str, str] = NOBODY, limits: QueryLimits = LIMITS) -> CagedResult:
    return run_caged(client, text, limits=limits, visible=lambda _topic: True, shown_rows=lambda _topic, rows: rows)


def own_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_a_long_answer_is_cut_without_being_made() -> None:
    """The whole answer became a table in the console: 2.4 GB for this query of a viewer."""
    before = own_memory()
    answer = asked("select * from range(300000000)")
    assert (len(answer.rows), answer.more, answer.rows[0]) == (1_000, True, ["0"])
    wide = asked("select " + ", ".join(f"{number} as c{number}" for number in range(500)) + " from range(5000)")
    assert (len(wide.rows), wide.more, wide.columns[499]) == (200, True, "c499")
    long = asked("select repeat('x', 50000) as text from range(20)")
    assert {len(row[0] or "") for row in long.rows} == {1_000}
    assert own_memory() - before < 100 << 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select repeat('x', 2000000000)", "too much memory"),
        ("select string_agg(repeat('x', 1000000), '') from range(5000)", "too much memory"),
        ("select count(*) from range(1000000000000) a, range(10) b", "took too long"),
        ("select " + "(" * 5_000 + "1" + ")" * 5_000, "not understood"),
        ("select " + "1+" * 20_000 + "1", "not understood"),
        ("select * from read_text('/etc/hostname')", "disabled by configuration"),
        ("select * from query_table('rows')", "does not exist"),
        ("select date '290000-01-01'", "cannot be shown"),
        ("attach '/tmp/x.db'", "SELECT"),
    ],
)
def test_a_hostile_query_costs_its_own_process(text: str, words: str) -> None:
    """A thread held 3.9 GB for 30 s, and no interrupt ended it."""
    before = own_memory()
    with pytest.raises(TableError, match=words):
        asked(text, limits=QueryLimits(seconds=5.0))
    assert own_memory() - before < 100 << 10


def test_a_process_that_is_killed_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def __init__(self, _module: str) -> None:
            pass

        def ask(self, _question: object, _timeout_s: float) -> Any:
            raise caged_query.ProcessEnded

        def close(self) -> None:
            pass

    monkeypatch.setattr(caged_query, "QuestionProcess", Ended)
    with pytest.raises(TableError, match="too much memory"):
        asked("select 1")


def test_topics_are_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest records of each partition were read, however large."""
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * 1_000] * 1_000})
    batches = iter([rows] * 100)
    monkeypatch.setattr(query, "read_range", lambda *_arguments: batches)
    with Broker() as broker:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        client = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("large", 1, 1)])["large"].result(30)
        with pytest.raises(TableError, match="large has more than 4 MiB; use ottla sql"):
            asked("select count(*) from large", client, QueryLimits(input_bytes=4 << 20))
    assert sum(1 for _ in batches) == 95
