"""Debian's Chromium driven by Playwright, and axe-core from npm for the accessibility check."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from tests.support.debian import debian_command
from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

CHROMIUM_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
AXE = "axe-core@4"


def chromium() -> str:
    """Chromium's path; Unavailable says why there is none."""
    return debian_command("chromium", "chromium", timeout_s=240)


@cache
def axe_source() -> str:
    """The script that finds accessibility problems; Unavailable where npm cannot fetch it."""
    folder = cache_dir().with_name("ottla-axe")
    script = folder / "package/axe.min.js"
    with file_lock(cache_dir().with_name("ottla-axe.lock")):
        if not script.exists():
            _fetch(folder)
    return script.read_text("utf-8")


def _fetch(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("no npm on PATH to fetch axe-core with")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            [npm, "pack", "--silent", AXE], cwd=folder, capture_output=True, text=True, timeout=50, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("npm pack axe-core took longer than 50 s") from None
    if done.returncode != 0:
        raise Unavailable(f"npm could not fetch axe-core: {done.stderr.strip()[-200:]}")
    with tarfile.open(folder / done.stdout.strip().splitlines()[-1]) as packed:
        packed.extract("package/axe.min.js", folder, filter="data")
