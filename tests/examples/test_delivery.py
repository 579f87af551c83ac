"""The examples of examples/delivery, run as their README says; each must come out as it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker

FOLDER = Path(__file__).resolve().parents[2] / "examples/delivery"
EXACTLY = (60, 0, 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(properties={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


def outcome(script: str, *arguments: str) -> tuple[int, int, int]:
    """Done once, done twice, lost."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) done once, (\d+) done twice, (\d+) lost", done.stdout)
    assert found is not None, done.stdout
    return int(found[1]), int(found[2]), int(found[3])


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("at_most_once.py", (55, 0, 5)),
        ("at_least_once.py", (55, 5, 0)),
        ("exactly_once.py", EXACTLY),
        ("deduplicate.py", EXACTLY),
        ("offsets_with_data.py", EXACTLY),
    ],
)
def test_example(script: str, expected: tuple[int, int, int], broker: Broker) -> None:
    assert outcome(script, broker.bootstrap_servers) == expected


@pytest.mark.timeout(180)
def test_without_an_argument_a_broker_is_started() -> None:
    assert outcome("exactly_once.py") == EXACTLY


def test_the_readme_names_every_example() -> None:
    readme = (FOLDER / "README.md").read_text()
    scripts = {path.name for path in FOLDER.glob("*.py")} - {"stage.py"}
    assert scripts == set(re.findall(r"^\| `(\w+\.py)`", readme, re.MULTILINE))
