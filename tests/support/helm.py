"""The real helm: from PATH, from the cache, or built once by `go install` where that was asked for (it takes minutes)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

VERSION = "v3.16.4"
_MODULE = "helm.sh/helm/v3/cmd/helm"


def helm(*, build_s: float = 0) -> str:
    """Its path; Unavailable says why there is none. With `build_s` it may take that long to build it."""
    found = shutil.which("helm")
    if found:
        return found
    binary = cache_dir().with_name(f"ottla-helm-{VERSION}") / "helm"
    if binary.exists():
        return str(binary)
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no helm on PATH and no go to build it with")
    if not build_s:
        raise Unavailable("no helm on PATH or in the cache; the soak test builds it (minutes)")
    with file_lock(binary.parent.with_name(binary.parent.name + ".lock")):
        if not binary.exists():
            _build(go, binary, build_s)
    return str(binary)


def _build(go: str, binary: Path, build_s: float) -> None:
    binary.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(binary.parent), "GOFLAGS": "-modcacherw"}
    try:
        done = subprocess.run(
            [go, "install", f"{_MODULE}@{VERSION}"],
            env=environment, capture_output=True, text=True, timeout=build_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"go install helm took longer than {build_s:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"go could not build helm: {done.stderr.strip()[-200:]}")
