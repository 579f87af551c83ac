"""Every verb that asks a cluster finds it the same way: a flag, then the environment, then the profile in use."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.testing import Broker

VERBS = [
    ["topic", "list"],
    ["group", "list"],
    ["cluster", "status"],
    ["cluster", "quorum"],
    ["top", "--count", "1"],
    ["sql", "select 1 as one"],
    ["txn", "list"],
    ["doctor"],
]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    for name in ("OTTLA_BOOTSTRAP_SERVERS", "OTTLA_PROFILE", "OTTLA_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path))
    return CliRunner()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens, and nothing will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_the_environment_and_the_profile_say_where(
    runner: CliRunner, servers: str, nobody: str, verb: list[str]
) -> None:
    named = runner.invoke(ottla, ["profile", "set", "here", "-b", servers])
    assert named.exit_code == 0, named.output
    used = runner.invoke(ottla, ["profile", "use", "here"])
    assert used.exit_code == 0, used.output
    by_profile = runner.invoke(ottla, verb)
    assert by_profile.exit_code == 0, by_profile.output
    by_environment = runner.invoke(ottla, [*verb, "--profile", "here"], env={"OTTLA_BOOTSTRAP_SERVERS": servers})
    assert by_environment.exit_code == 0, by_environment.output
    by_flag = runner.invoke(ottla, [*verb, "-b", servers], env={"OTTLA_BOOTSTRAP_SERVERS": nobody})
    assert by_flag.exit_code == 0, by_flag.output


def test_a_profile_that_is_not_there(runner: CliRunner) -> None:
    for verb in VERBS:
        refused = runner.invoke(ottla, [*verb, "--profile", "nowhere"])
        assert refused.exit_code == 1
        assert "there is no profile 'nowhere'" in refused.output
