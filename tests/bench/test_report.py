"""The files that a run leaves behind."""

import json
from pathlib import Path

import pytest
from bench.loads import partitions
from bench.measure import RATE, SUBJECT, YARDSTICK, Table

from bench import report


def result(table: Table, *, quick: bool = False) -> dict:
    facts = {"cores": 2, "cpu": "a cpu", "memory_gb": 8, "kernel": "6", "system": "Linux", "python": "3.11"}
    facts |= {
        "uvloop": "0.22",
        "java": "17",
        "confluent_kafka": "2",
        "load_at_start": [1, 1, 1],
        "load_at_end": [2, 2, 2],
    }
    return {
        "date": "2030-01-02T03:04:05Z",
        "minutes": 1.5,
        "quick": quick,
        "machine": facts,
        "servers": {
            SUBJECT: {"name": "Ottla", "version": "0.1"},
            YARDSTICK: {"name": "Apache Kafka", "version": "4.3.1"},
        },
        "sizes": {"rounds": 3},
        "rows": [row.to_json() for row in table.rows],
    }


@pytest.fixture
def table() -> Table:
    table = Table()
    for ours, theirs in ((120.0, 100.0), (130.0, 90.0), (125.0, 95.0)):
        table.add("produce", "1 KB", SUBJECT, {RATE: ours})
        table.add("produce", "1 KB", YARDSTICK, {RATE: theirs})
    for count in (10, 100):
        for role in (SUBJECT, YARDSTICK):
            table.add("partitions", f"{count} partitions", role, {partitions.MEMORY: count + 20.0}, count)
    return table


def test_json_is_written_under_date_and_machine(table: Table, tmp_path: Path) -> None:
    path = report.write_json(result(table, quick=True), tmp_path / "results")
    assert path.name.startswith("2030-01-02T030405-")
    assert path.name.endswith("-quick.json")
    assert [row.key for row in report.rows_of(json.loads(path.read_text()))] == [row.key for row in table.rows]


def test_docs_keep_what_is_outside_the_markers(table: Table, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for _ in range(2):
        report.write_docs(result(table), tmp_path)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| 1 KB | rate, MB/s | 125 (120..130) | 95.0 (90.0..100) | 1.32x | ≥ 1.1x | met |" in text
    for image in ("bench-produce.png", "bench-partitions.png"):
        assert f"images/{image}" in text
        assert (tmp_path / "images" / image).read_bytes()[:4] == b"\x89PNG"


def test_docs_without_markers_are_not_touched(table: Table, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("hand-written")
    with pytest.raises(ValueError, match="markers"):
        report.write_docs(result(table), tmp_path)
    assert page.read_text() == "hand-written"


def test_a_failure_is_named_in_docs_and_summary(table: Table) -> None:
    table.fail("produce", "1 KB", SUBJECT, [RATE], "MismatchError: 9 records in the log after writing 10")
    failed = result(table)
    assert report.failed(failed)
    assert "- produce, 1 KB, Ottla: MismatchError: 9 records" in report.markdown(failed, {})
    assert "targets: 1 failed" in report.summary(failed)


def test_merge_takes_the_later_row(table: Table) -> None:
    later = Table()
    later.add("produce", "1 KB", SUBJECT, {RATE: 7.0})
    later.add("memory", "idle", SUBJECT, {RATE: 1.0})
    both = report.merge([result(table), result(later, quick=True)])
    merged = report.rows_of(both)
    assert report.markdown(both, {}).count("Machine: ") == 2, "each run keeps its facts"
    assert [row.load for row in merged] == ["produce", "memory", "partitions", "partitions"]
    assert merged[0].samples[SUBJECT] == [7.0]


def test_the_floor_stands_beside_its_row_and_says_when_it_is_short_too(table: Table) -> None:
    floor = Table()
    floor.add("produce", "1 KB", SUBJECT, {RATE: 105.0})
    floor.add("produce", "1 KB", YARDSTICK, {RATE: 100.0})
    text = report.markdown(report.with_floor(result(table), result(floor)), {})
    assert "| 1 KB | rate, MB/s | 125 (120..130) | 95.0 (90.0..100) | 1.32x | **1.05x** | ≥ 1.1x | met |" in text
    growth = next(line for line in text.splitlines() if line.startswith("| 10 partitions |"))
    assert growth.count("|") == 8  # a table without a floor has no such column


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (12345.6, "12,346")]
)
def test_number(value: float | None, text: str) -> None:
    assert report.number(value) == text


def test_the_page_has_the_tables_of_the_runs_that_it_names() -> None:
    """A page whose tables are of another run than its text and its stored results passed for a day."""
    root = Path(__file__).parents[2]
    section = (root / "docs" / "benchmarks.md").read_text().partition(report.BEGIN)[2].partition(report.END)[0]
    stored, floors = (
        [run for path in sorted(folder.glob("*.json")) if report.moment(run := json.loads(path.read_text())) in section]
        for folder in (root / "bench" / "results", root / "bench" / "results" / "floor")
    )
    images = {path.stem.removeprefix("bench-"): f"images/{path.name}" for path in root.glob("docs/images/bench-*.png")}
    whole = report.with_floor(report.merge(stored), *floors)
    assert section.strip() == report.markdown(whole, images).strip()
