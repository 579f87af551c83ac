"""Every name that docs/public-api.md promises exists."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "public-api.md").read_text()


@pytest.mark.parametrize("name", re.findall(r"`(ottla(?:\.\w+)+)`", PAGE))
def test_a_promised_name_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert getattr(importlib.import_module(module), attribute) is not None


def test_the_extras_are_those_of_the_metadata() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"`ottla\[(\w+)\]`", PAGE)) == extras.keys() - {"dev"}
