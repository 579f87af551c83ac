"""docs/licences.md is what the tool writes, and the core has no copyleft."""

from __future__ import annotations

import re
import sys

import pytest
from tools.distributions import brought_by, size_of

from tools import licences

LIMIT_BYTES = 100_000_000


def test_the_core_has_no_copyleft() -> None:
    core = {name: licence for name, (installation, licence) in licences.rows().items() if installation == "core"}
    assert len(core) > 20
    assert {name: licence for name, licence in core.items() if licences.COPYLEFT.search(licence)} == {}
    assert "not stated" not in core.values()


@pytest.mark.parametrize(
    "licence", ["LGPL-2.1-or-later", "GNU Lesser General Public License v2", "MPL-2.0", "AGPL-3.0"]
)
def test_copyleft_is_recognized(licence: str) -> None:
    assert licences.COPYLEFT.search(licence)


@pytest.mark.skipif(sys.platform != "linux" or sys.version_info >= (3, 14), reason="other systems bring other packages")
def test_the_page_is_current() -> None:
    assert licences.PAGE.read_text() == licences.page(), "run: python -m tools.licences"


def test_the_core_is_below_100_mb() -> None:
    """Dependencies only; bytecode, which pip writes after it has unpacked them, is a sixth more."""
    sizes = {name: size_of(installed) for name, installed in brought_by().items()}
    assert sum(sizes.values()) < LIMIT_BYTES, sizes
    assert not {"pyarrow", "duckdb", "numpy", "pyspark"} & sizes.keys()


def test_each_distribution_of_the_core_is_locked() -> None:
    text = (licences.PAGE.parents[1] / "requirements.lock").read_text()
    assert set(brought_by()) == set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))
