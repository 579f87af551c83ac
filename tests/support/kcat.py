"""kcat, librdkafka's command-line client: from PATH, else Debian's package when this is root and apt can reach it.

Set OTTLA_APT=0 to leave the machine's packages alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock


@cache
def kcat() -> str:
    """The kcat command; Unavailable says why there is none."""
    found = shutil.which("kcat")
    if found:
        return found
    if os.environ.get("OTTLA_APT") == "0":
        raise Unavailable("no kcat on PATH, and OTTLA_APT=0 forbids installing it")
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise Unavailable("no kcat on PATH, and only root on Debian can install it here")
    with file_lock(cache_dir().with_name("ottla-kcat.lock")):
        if not shutil.which("kcat"):
            _install()
    installed = shutil.which("kcat")
    if installed is None:
        raise Unavailable("apt-get installed kcat but it is not on PATH")
    return installed


def _install() -> None:
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "kcat"]
    for command in (install, ["apt-get", "update", "-q"], install):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"no kcat: {' '.join(command[:2])} took longer than 50 s") from None
        if command is install and done.returncode == 0:
            return
    lines = done.stderr.strip().splitlines() or ["no output"]
    raise Unavailable(f"no kcat: apt-get could not install it: {lines[-1][:200]}")


def run_kcat(*args: str, input: str | None = None, timeout: float = 30) -> subprocess.CompletedProcess[str]:  # noqa: A002 - as subprocess.run
    return subprocess.run(
        [kcat(), *args], input=input or "", capture_output=True, text=True, timeout=timeout, check=False
    )
