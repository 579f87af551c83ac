"""A three-node cluster is rolled from an earlier version to this version, and back, while clients work (docs/upgrade.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka_jars import Unavailable
from tests.upgrade.earlier import install, missing_requirements
from tests.upgrade.rolling import roll

MARGIN_S = 2.0
"""A gap may be longer than that of a restart of the same version by this much: one pass is three restarts."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return install("625b364", tmp_path_factory.mktemp("earlier"))
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.timeout(1800)
def test_a_cluster_is_rolled_forth_and_back_under_load(site: Path, tmp_path: Path) -> None:
    """Nothing is lost or doubled, and no step costs more than a restart."""
    gaps = roll(tmp_path, site).gaps
    assert max(gaps["upgrade"], gaps["back"]) <= 2 * gaps["restart"] + MARGIN_S, gaps


def test_requirements_that_are_not_installed_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "ottla-0.1.dist-info"
    folder.mkdir()
    lines = ["click>=8", "no-such-library[x]>=1; python_version < '9'", "no-such-extra; extra == 'dev'"]
    (folder / "METADATA").write_text("Name: ottla\n" + "".join(f"Requires-Dist: {line}\n" for line in lines))
    assert missing_requirements(tmp_path) == ["no-such-library[x]>=1"]


def test_a_commit_that_a_shallow_clone_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="git has no such commit"):
        install("0" * 40, tmp_path)
