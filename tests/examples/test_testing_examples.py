"""The examples of examples/testing: their own tests, run by pytest in a copy of the folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.robustness.server_process import environment

FOLDER = Path(__file__).resolve().parents[2] / "examples/testing"
LONGEST_PROGRAM = 60


def run(python: str, folder: Path, own: dict[str, str], *words: str, timeout_s: float = 170) -> str:
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", *words],
        cwd=folder, env=own, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_pass(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "testing", ignore=shutil.ignore_patterns("__pycache__", "*quix*")))
    assert "9 passed" in run(sys.executable, folder, environment())


def test_each_example_is_short_and_listed() -> None:
    programs = {file.name: file.read_text("utf-8") for file in FOLDER.glob("*.py")}
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert [name for name, text in programs.items() if text.count("\n") > LONGEST_PROGRAM] == []
    assert [name for name in programs if f"]({name})" not in readme] == []
    assert {f"test_{name}" for name in programs if not name.startswith("test_")} <= programs.keys()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_quix_streams(tmp_path: Path) -> None:
    """Quix Streams holds back confluent-kafka and pydantic, so the test has an environment of its own, with Ottla's wheel."""
    from tools import dist

    dist.build(tmp_path / "dist")
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    wheel = next((tmp_path / "dist").glob("*.whl"))
    subprocess.run(
        [str(python), "-m", "pip", "install", "-q", str(wheel), "quixstreams", "pytest"], check=True, timeout=600
    )
    folder = Path(shutil.copytree(FOLDER, tmp_path / "testing"))
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert "1 passed" in run(str(python), folder, own, "test_quix_totals.py")
