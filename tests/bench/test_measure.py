"""The verdicts of the benchmark: they decide what the docs claim, so each kind is pinned."""

import pytest
from bench.measure import CPU_PER_GB, P99, RATE, SUBJECT, YARDSTICK, Quantity, Row, Table, Target, percentile

START = Quantity("first answer", "s", "lower", Target("absolute", "<=", 0.5))


def row(quantity: Quantity, ours: list[float], theirs: list[float]) -> Row:
    return Row("load", "label", quantity, {SUBJECT: ours, YARDSTICK: theirs})


@pytest.mark.parametrize(
    ("quantity", "ours", "theirs", "verdict"),
    [
        (RATE, [110.0], [100.0], "met"),
        (RATE, [109.0], [100.0], "short"),
        (CPU_PER_GB, [0.5], [1.0], "met"),
        (CPU_PER_GB, [0.51], [1.0], "short"),
        (P99, [0.6], [1.0], "met"),
        (P99, [0.61], [1.0], "short"),
        (START, [0.5], [0.1], "met"),
        (START, [0.51], [9.0], "short"),
        (START, [0.4], [], "met"),
        (RATE, [110.0], [], "no yardstick"),
        (RATE, [], [100.0], "failed"),
        (Quantity("p50", "ms", "lower"), [9.0], [1.0], "-"),
    ],
)
def test_verdict(quantity: Quantity, ours: list[float], theirs: list[float], verdict: str) -> None:
    assert row(quantity, ours, theirs).verdict == verdict


def test_medians_decide_and_one_outlier_does_not() -> None:
    measured = row(RATE, [1.0, 120.0, 130.0], [100.0, 90.0, 900.0])
    assert (measured.median(SUBJECT), measured.median(YARDSTICK), measured.ratio) == (120.0, 100.0, 1.2)
    assert measured.spread(SUBJECT) == (1.0, 130.0)
    assert measured.verdict == "met"


def test_a_row_with_an_error_is_failed_even_when_other_rounds_were_fast() -> None:
    table = Table()
    table.add("produce", "1 KB", SUBJECT, {RATE: 500.0})
    table.add("produce", "1 KB", YARDSTICK, {RATE: 100.0})
    table.fail("produce", "1 KB", SUBJECT, [RATE], "MismatchError: 9 records in the log after writing 10")
    assert [row.verdict for row in table.rows] == ["failed"]


def test_rows_survive_json() -> None:
    measured = row(START, [0.4], [4.0])
    measured.x = 10
    assert Row.from_json(measured.to_json()) == measured


@pytest.mark.parametrize(("percent", "value"), [(1, 1.0), (50, 50.0), (99, 99.0), (99.5, 100.0), (100, 100.0)])
def test_percentile_is_a_measured_value(percent: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == value


def test_targets_of_the_issue() -> None:
    from bench.loads import connections, start
    from bench.measure import REQUEST_RATE, RSS

    said = [(q.name, q.target.describe(q.unit)) for q in (RATE, REQUEST_RATE, CPU_PER_GB, P99, RSS) if q.target]
    assert said == [
        ("rate", "≥ 1.1x"),
        ("requests", "≥ 1.1x"),
        ("broker CPU", "≤ 0.5x"),
        ("p99", "≤ 0.6x"),
        ("RSS", "≤ 0.1x"),
    ]
    assert start.EMPTY.target == Target("absolute", "<=", 0.5)
    assert start.KILLED.target == Target("absolute", "<=", 2.0)
    assert connections.ANSWER.target == Target("absolute", "<=", 100.0)
