"""Tables on a terminal of 80 columns: numbers and names are whole, and no column is missing."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from ottla.cli.cluster.tables import quorum_table, status_table
from ottla.cli.terminal import output, tables
from ottla.pipelines.display import print_whole as pipeline_print
from ottla.pipelines.display import status_table as pipeline_table

LARGE = 1_234_567_890_123
LONG = "user.shop.orders-of-all-countries-and-years-since-the-beginning.avro-0"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    shown = io.StringIO()

    class Narrow(Console):
        def __init__(self, width: int = 80) -> None:
            super().__init__(file=shown, width=width, force_terminal=False)

    monkeypatch.setattr("rich.console.Console", Narrow)
    monkeypatch.setattr(output, "console", Narrow)
    monkeypatch.setattr(tables, "console", Narrow)
    return shown


def test_rows_that_do_not_fit_are_blocks(screen: io.StringIO) -> None:
    titles = [f"column {number}" for number in range(8)]
    tables.print_rows(titles, [[str(LARGE + number) for number in range(8)], [LONG] * 8])
    lines = screen.getvalue().splitlines()
    for number, title in enumerate(titles):
        assert f"{title}  {LARGE + number}" in lines
    assert screen.getvalue().count(LONG) == 8


def test_rows_that_fit_are_a_table(screen: io.StringIO) -> None:
    tables.print_rows(["a", "b"], [["1", "[bold]x"]])
    assert "row 1" not in screen.getvalue()
    assert "[bold]x" in screen.getvalue()


def test_cluster_status(screen: io.StringIO) -> None:
    node: dict[str, Any] = {
        "id": 1, "state": "up", "address": f"{LONG}.example.org:9092", "rack": "eu-west-1a", "replicas": LARGE, "leaders": LARGE - 1,
    }  # fmt: skip
    report = {
        "cluster_id": "MkU3OEVBNTcwNTJENDM2Qg", "healthy": False, "nodes": [node], "partitions": LARGE,
        "under_replicated": [LONG], "without_leader": [], "moving": [], "restoring": [],
    }  # fmt: skip
    status_table(report)
    shown = screen.getvalue()
    assert {str(LARGE), str(LARGE - 1), node["address"], "eu-west-1a"} <= set(shown.split())
    assert "…" not in shown


@pytest.mark.parametrize("width", [40, 60])
def test_a_listing_that_does_not_fit_is_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """`topic list` is 45 columns wide with one short topic."""
    monkeypatch.setattr(output, "_screen_width", lambda: width)
    rows = [{"topic": "t", "partitions": LARGE, "replicas": 3, "under-replicated": 0}]
    output.show(rows, "table")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == ("row 1" if width == 40 else "TOPIC  PARTITIONS     REPLICAS  UNDER-REPLICATED")
    assert str(LARGE) in " ".join(lines).split()


def test_cluster_status_at_40_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    for module in (output, tables):
        monkeypatch.setattr(module, "console", lambda: Console(file=shown, width=40))
    node = {"id": 1, "state": "up", "address": "127.0.0.1:9092", "rack": "", "replicas": 1, "leaders": 1}
    report = {
        "cluster_id": "MkU3OEVBNTcwNTJENDM2Qg", "healthy": False, "nodes": [node], "partitions": 61, "restoring": ["2026-1"],
        "under_replicated": ["orders-0", "orders-1", "orders-2"], "without_leader": [], "moving": [],
    }  # fmt: skip
    status_table(report)
    assert max(map(len, shown.getvalue().splitlines())) <= 40
    assert "a restore of 2026-1 has not ended" in " ".join(shown.getvalue().split())


def test_quorum(screen: io.StringIO) -> None:
    row = {"id": 2_147_483_647, "role": "observer", "end": LARGE, "lag": LARGE - 1}
    quorum_table({"leader": 1, "epoch": LARGE, "high_watermark": LARGE, "replicas": [row]})
    assert {str(LARGE), str(LARGE - 1), "2147483647", "observer"} <= set(screen.getvalue().split())


def test_pipeline_status(screen: io.StringIO) -> None:
    query = {
        "name": f"p/{LONG}", "rows": LARGE, "rows_per_second": 1234567.0, "lag": LARGE - 1, "lag_seconds": 123456.7, "batch": 123456,
        "batch_ms": 1234567, "state_rows": LARGE - 2, "state_bytes": 1e12, "state_partitions": 200, "restarts": 3, "active": True,
        "error": "",
    }  # fmt: skip
    tables.print_whole(pipeline_table({"name": "p", "state": "running", "queries": [query]}))
    shown = screen.getvalue()
    for number in (
        f"{LARGE:,}",
        f"{LARGE - 1:,}",
        f"{LARGE - 2:,}",
        "1,234,567",
        "123,456.7",
        "123456",
        "1,000,000.0",
        LONG,
    ):
        assert number in shown, number


QUERY = {
    "name": f"p/{LONG}", "rows": 123_456_789, "rows_per_second": 1234567.0, "lag": 987_654_321, "lag_seconds": 1234.5,
    "batch": 12345, "batch_ms": 123456, "state_rows": 12_345_678, "state_bytes": 1e9, "state_partitions": 200, "restarts": 3,
    "active": True, "error": "",
}  # fmt: skip


def test_the_live_display_leaves_out_columns_and_cuts_no_number(screen: io.StringIO) -> None:
    status = {"name": "p", "state": "running", "queries": [QUERY]}
    Console(file=screen, width=80).print(pipeline_table(status, 80))
    shown = screen.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    (row,) = (line for line in shown.splitlines() if "123,456,789" in line)
    assert row.split()[1:4] == ["123,456,789", "1,234,567", "987,654,321"]
    assert "…" not in row.split(maxsplit=1)[1]
    assert "parts" not in shown
    pipeline_print(Console(file=screen, width=80), pipeline_table(status))
    assert all(text in screen.getvalue() for text in (LONG, "12,345,678", "1,000.0", "parts"))


def test_top(screen: io.StringIO) -> None:
    from ottla.cli.verbs.top import _table

    topics = _table("Topics", ("topic", "state"), ("parts", "records", "records/s", "size"))
    topics.add_row(LONG, "under-replicated", "100000", f"{LARGE:,}", "1,234,567", "1,023.9 TiB")
    Console(file=screen, width=80).print(topics)
    shown = screen.getvalue()
    for number in ("100000", f"{LARGE:,}", "1,234,567", "1,023.9 TiB"):
        assert number in shown, number
