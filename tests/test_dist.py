"""What `make dist` refuses; and, as a long test, its files: equal twice, installed in an empty environment, and running."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.support.core_environment import ROOT, Core
from tools import dist


def test_metadata_without_a_licence_is_refused() -> None:
    metadata = Message()
    for name in dist.NEEDED:
        metadata[name] = "x"
    metadata.set_payload("text")
    dist.check_metadata("a.whl", metadata)
    del metadata["License-Expression"]
    with pytest.raises(dist.DistError, match="License-Expression"):
        dist.check_metadata("a.whl", metadata)


def test_a_wheel_with_bytecode_is_refused(tmp_path: Path) -> None:
    built = dist.build(tmp_path)
    assert len(built) == 2
    dist.check(tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl")), "a") as wheel:
        wheel.writestr("ottla/x.pyc", b"")
    with pytest.raises(dist.DistError, match=r"ottla/x\.pyc"):
        dist.check(tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    """Downloads the locked packages of the core."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert dist.build(first) == dist.build(second)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    core = Core(environment / "bin" / "python", tmp_path)
    for words in (
        ("--require-hashes", "-r", str(ROOT / "requirements.lock")),
        ("--no-deps", str(next(first.glob("*.whl")))),
    ):
        installed = core.run("pip", "install", "-q", *words, timeout_s=600)
        assert installed.returncode == 0, installed.stderr
    ottla = subprocess.run([environment / "bin" / "ottla", "--version"], capture_output=True, text=True, check=True)
    assert ottla.stdout.startswith("ottla")
    with core.up():
        core.ottla("produce", "orders", text="from the wheel\n")
        assert "from the wheel" in core.ottla("consume", "orders", "--from", "beginning", "-n", "1")
