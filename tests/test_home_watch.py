"""The check that tests leave nothing in the home: whose entry it is decides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.home_watch import HomeWatch


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config/ottla").mkdir()
    return tmp_path


def by_another_process(path: Path) -> None:
    subprocess.run([sys.executable, "-c", f"open({str(path)!r}, 'w')"], check=True, timeout=60)


def test_entries_of_this_process_and_of_its_programs_are_found(home: Path) -> None:
    watch = HomeWatch(home)
    (home / "notes").write_text("x")
    (home / ".config" / "unknown" / "deep").mkdir(parents=True)
    by_another_process(home / ".ottla-state")
    assert watch.left() == {"notes", ".config/unknown", ".ottla-state"}


def test_entries_of_a_person_are_not(home: Path) -> None:
    watch = HomeWatch(home)
    by_another_process(home / ".config" / "procps")
    (home / ".config" / "procps").read_text()
    (home / ".cache").mkdir()
    (home / ".config" / "ottla" / "profiles").write_text("was there before")
    assert watch.left() == set()
