"""A run of pytest without anything that only Linux has: `python -m tests.support.without_linux PATHS`.

Every interpreter of the run, also that of each child process, imports `sitecustomize.py` of this folder first. It removes
the names that macOS lacks (`tests/support/linux_only.py`), hides /proc, adds F_FULLFSYNC, and limits open files as macOS
does. What it cannot show: macOS's kernel, its file system, and compiled packages.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.linux_only import linux_only

NAMES = "OTTLA_TEST_WITHOUT"
SOFT_OPEN_FILES = 256
"""What a shell on macOS starts with."""


def environment() -> dict[str, str]:
    folder = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return plain | {"PYTHONPATH": path, NAMES: json.dumps(linux_only())}


def run_pytest(arguments: Sequence[str], *, timeout_s: float | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        env=environment(),
        preexec_fn=_limit_open_files,
        timeout=timeout_s,
        check=False,
    )


def _limit_open_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT_OPEN_FILES, hard))
