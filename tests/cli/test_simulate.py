"""`ottla simulate`: exit codes, JSON, drawn scenarios, and imports."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.commands import ottla
from ottla.env import logging

SMALL = """
[run]
duration = "6s"
[[topic]]
name = "orders"
replicas = [[1]]
[[producer]]
topic = "orders"
rate = 50
count = 100
"""
POWER_CUT = SMALL + "[[fault]]\nat = '3s'\nkind = 'power_cut'\ntarget = 'broker 1'\nfor = '1s'\n"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    yield
    logging.configure(io.StringIO(), level="info")
    logging._sink = kept


def simulate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(ottla, ["simulate", *map(str, arguments)])


def test_nothing_lost_is_exit_code_0(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    done = simulate(path)
    assert done.exit_code == 0, done.output
    assert "VERDICT: nothing lost, nothing doubled: the log has all 100 acknowledged records" in done.output


def test_a_loss_is_exit_code_1_and_json_has_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "cut.toml"
    path.write_text(POWER_CUT)
    done = simulate(path, "-o", "json")
    assert done.exit_code == 1, done.output
    tree = json.loads(done.output)
    assert tree["failed"] is True
    assert tree["totals"]["lost"] == sum(len(lost["records"]) for lost in tree["lost"]) > 0
    assert any("power cut at 3.000 s" in sentence for lost in tree["lost"] for sentence in lost["reason"])


def test_many_runs_count_how_often_records_are_lost(tmp_path: Path) -> None:
    path = tmp_path / "cut.toml"
    path.write_text(POWER_CUT)
    done = simulate(path, "--runs", "3", "--seed", "4", "-o", "json")
    tree = json.loads(done.output)
    assert (tree["first_seed"], tree["runs"]) == (4, 3)
    assert tree["lost"]["runs"] == len(tree["lost"]["seeds"])
    assert done.exit_code == (1 if tree["lost"]["runs"] else 0)


def test_a_bad_scenario_is_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.replace("rate", "rat"))
    done = simulate(path)
    assert done.exit_code == 2
    assert "line 9, [[producer]] number 1, rat: unknown key" in done.output
    assert "did you mean rate?" in done.output
    assert simulate(tmp_path / "missing.toml").exit_code == 2
    assert simulate().exit_code == 2
    assert simulate(path, "--save", tmp_path / "new.toml").exit_code == 2


def test_a_saved_scenario_is_the_drawn_one(tmp_path: Path) -> None:
    path = tmp_path / "drawn.toml"
    drawn = simulate("--seed", "2", "--save", path)
    assert drawn.exit_code in {0, 1}, drawn.output
    again = simulate(path)
    assert again.output.replace(str(path), "drawn scenario") == drawn.output
    refused = simulate("--seed", "2", "--save", path)
    assert refused.exit_code == 2
    assert "cannot be written" in refused.output


def test_the_command_line_starts_without_the_simulator_and_the_simulator_without_pytest() -> None:
    code = (
        "import sys, ottla.cli.verbs.simulate;"
        "assert not any(name.startswith(('ottla.simulation', 'ottla.server', 'ottla.broker')) for name in sys.modules);"
        "import ottla.simulation.scenario.verdict, ottla.simulation.scenario.report;"
        "assert 'pytest' not in sys.modules and not any(name.startswith('tests') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
