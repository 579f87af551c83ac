"""A forked Python process is one that was started: words, environment, open files, exit status, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.ottla_server import ROOT
from tests.support.python_forks import fork_environment, python_command

MODULE = """
import os, sys
print(sys.argv[1:], os.environ["WORD"], os.getcwd(), sys.stdin.readline().strip(), flush=True)
if sys.argv[1] == "stay":
    print(os.getpid(), flush=True)
    sys.stdin.read()
sys.exit(3)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    (tmp_path / "module_of_a_worker.py").write_text(MODULE)
    made = {**os.environ, **fork_environment(tmp_path), "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "WORD": "a"}
    server = subprocess.Popen(
        [sys.executable, "-c", "from tests.support.python_forks import serve; serve(())"], env=made
    )
    yield made | {"WORD": "b"}
    server.kill()
    server.wait(30)


def start(tmp_path: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python_command(tmp_path), "-m", "module_of_a_worker", *words],
        env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_words_environment_files_and_status(tmp_path: Path, environment: dict[str, str]) -> None:
    output, _ = start(tmp_path, environment, "x", "y").communicate("hello", timeout=60)
    assert output == f"['x', 'y'] b {tmp_path} hello\n"
    asked = start(tmp_path, environment, "x")
    asked.communicate("", timeout=60)
    assert asked.returncode == 3


def test_the_end_of_either_process_ends_the_other(tmp_path: Path, environment: dict[str, str]) -> None:
    for ended in ("asked", "forked"):
        asked = start(tmp_path, environment, "stay")
        assert asked.stdin is not None
        assert asked.stdout is not None
        asked.stdin.write("\n")
        asked.stdin.flush()
        asked.stdout.readline()
        pid = int(asked.stdout.readline())
        os.kill(asked.pid if ended == "asked" else pid, signal.SIGTERM if ended == "asked" else signal.SIGKILL)
        assert asked.wait(60) == signal.SIGKILL, ended
        assert asked.stdout.read() == ""  # both have closed it
