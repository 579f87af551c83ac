"""The node of today on a folder that each recorded version left behind: everything is there, and everything goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.upgrade import observations as observe
from tests.upgrade.checks import CHECKS, PARTS
from tests.upgrade.record import RECORDED
from tests.upgrade.scenes.node import observed
from tests.upgrade.started import Started, started, versions

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module", params=versions("node"))
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("node") / "folder"
    with started(RECORDED / request.param / "node.tar.xz", folder) as running:
        with observe.connected(running.address()) as cluster:
            running.observed = observed(cluster, running.address())
        yield running


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_was_recorded(node: Started, check: Callable[[Started], None]) -> None:
    check(node)


@pytest.mark.parametrize("version", versions("node"))
def test_a_second_start_changes_nothing(version, tmp_path):
    archive = RECORDED / version / "node.tar.xz"
    with started(archive, tmp_path / "folder"):
        pass
    with started(archive, tmp_path / "folder") as again, observe.connected(again.address()) as cluster:
        found = observed(cluster, again.address())
        assert {part: found[part] for part in PARTS} == {part: again.manifest[part] for part in PARTS}
