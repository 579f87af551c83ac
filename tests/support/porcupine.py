"""Porcupine, a checker of histories in Go: built once into the cache with the models of `robustness/porcupine/main.go`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.go_binaries import go_binary

SOURCE = Path(__file__).parent.parent / "robustness/porcupine/main.go"
MODULE = "github.com/anishathalye/porcupine"
VERSION = "v1.3.1"
NAME = "agree"
OK = "Ok"
BUILD_S, CHECK_S = 300.0, 900.0


@dataclass(frozen=True)
class Opinion:
    """What porcupine found in one part of a history: the log of a partition, or the transactions of a topic."""

    part: str
    result: str
    """Ok, Illegal, or Unknown after the time limit."""
    operations: int


def porcupine() -> Path:
    """The program; Unavailable says why there is none."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    return go_binary(NAME, f"{VERSION}-{digest}", _build)


def opinions(history: Path) -> list[Opinion]:
    done = subprocess.run(
        [str(porcupine()), str(history)], capture_output=True, text=True, timeout=CHECK_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    return [Opinion(part, result, int(count)) for result, part, count in rows]


def _build(go: str, folder: Path) -> str:
    """The problem, if there is one."""
    shutil.copyfile(SOURCE, folder / "main.go")
    (folder / "go.mod").write_text("module ottla.test/agree\n\ngo 1.21\n")
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false -modcacherw"}
    for command in ([go, "get", f"{MODULE}@{VERSION}"], [go, "build", "-o", NAME, "."]):
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"go {command[1]} took longer than {BUILD_S:.0f} s"
        if done.returncode:
            return f"go {command[1]}: {done.stderr.strip()[-300:]}"
    return ""
