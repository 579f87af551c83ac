"""Commands of Debian's packages: from PATH, else installed when this is root and apt can reach its packages.

Set OTTLA_APT=0 to leave the machine's packages alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock


@cache
def debian_command(command: str, package: str, timeout_s: float = 50) -> str:
    """The command's path; Unavailable says why there is none."""
    found = shutil.which(command)
    if found:
        return found
    if os.environ.get("OTTLA_APT") == "0":
        raise Unavailable(f"no {command} on PATH, and OTTLA_APT=0 forbids installing it")
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise Unavailable(f"no {command} on PATH, and only root on Debian can install it here")
    with file_lock(cache_dir().with_name("ottla-apt.lock")):
        if not shutil.which(command):
            _install(package, timeout_s)
    installed = shutil.which(command)
    if installed is None:
        raise Unavailable(f"apt-get installed {package} but {command} is not on PATH")
    return installed


def _install(package: str, timeout_s: float) -> None:
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (install, ["apt-get", "update", "-q"], install):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"no {package}: {' '.join(command[:2])} took longer than {timeout_s:.0f} s") from None
        if command is install and done.returncode == 0:
            return
    lines = done.stderr.strip().splitlines() or ["no output"]
    raise Unavailable(f"no {package}: apt-get could not install it: {lines[-1][:200]}")
