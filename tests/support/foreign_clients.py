"""Clients of other languages: kafkajs (npm) and franz-go (go), fetched once into the cache, run as processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

_HERE = Path(__file__).parent
_NPM = ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0")
_GO = ("github.com/twmb/franz-go@v1.22.2", "github.com/twmb/franz-go/pkg/kadm@v1.19.0")


def run_kafkajs(bootstrap_servers: str, timeout: float = 60) -> dict[str, str]:
    """What kafkajs.js said; AssertionError when it failed, Unavailable where there is no node or no registry."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Unavailable("no node and npm on PATH")
    folder = cache_dir().with_name("ottla-" + "-".join(_NPM).replace("@", "-"))
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / "node_modules/kafkajs").exists():
            _get(
                [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), *_NPM], folder
            )
    return _said(
        [node, str(_HERE / "kafkajs.js"), bootstrap_servers], timeout, {"NODE_PATH": str(folder / "node_modules")}
    )


def run_franz(bootstrap_servers: str, timeout: float = 100) -> dict[str, str]:
    """What franz.go said. Building it takes a minute or two, the first time."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no go on PATH")
    source = (_HERE / "franz.go").read_text()
    digest = hashlib.sha256("".join((source, *_GO)).encode()).hexdigest()[:12]
    folder = cache_dir().with_name(f"ottla-franz-{digest}")
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / "franz").exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "main.go").write_text(source)
            (folder / "go.mod").write_text("module franz\n")
            _get([go, "get", *_GO], folder)
            _get([go, "build", "-o", "franz", "."], folder)
    return _said([str(folder / "franz"), bootstrap_servers], timeout, {})


def _get(command: list[str], folder: Path, timeout: float = 300) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOFLAGS": "-modcacherw -buildvcs=false -mod=mod"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[0]).name} {command[1]} took longer than {timeout:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"{Path(command[0]).name} {command[1]}: {done.stderr.strip()[-300:]}")


def _said(command: list[str], timeout: float, environment: Mapping[str, str]) -> dict[str, str]:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.rpartition(" ") if line.startswith("read franz") else line.partition(" ") for line in done.stdout.splitlines()]  # fmt: skip
    return {what: value for what, _, value in lines}
