"""The blocks of docs/testing.md and docs/read-and-write.md, run as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.robustness.server_process import environment

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECIPES = {
    "java": ("java", "WithOttla.java", ["java", "WithOttla.java"]),
    "go": ("go", "main.go", ["go", "run", "main.go"]),
    "javascript": ("node", "main.js", ["node", "main.js"]),
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_python_of_the_testing_page(tmp_path):
    texts = blocks("testing.md", "python")
    for number, text in enumerate(texts):
        (tmp_path / f"test_block_{number}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    tests = sum(len(re.findall(r"^ *def test_", text, re.MULTILINE)) for text in texts)
    assert tests == 5
    assert f"{tests} passed" in done.stdout, done.stdout + done.stderr


def test_the_python_of_the_page_about_tables(monkeypatch, capsys):
    with Broker() as broker:
        monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        broker.create_topic("orders")
        names: dict[str, object] = {}
        for text in blocks("read-and-write.md", "python"):
            exec(text, names)
    assert capsys.readouterr().out.splitlines()[2] == "0 2 None {'id': 3, 'page': '/c'}"


@pytest.mark.interop
@pytest.mark.parametrize(
    "language",
    ["java", pytest.param("go", marks=pytest.mark.soak), "javascript"],  # Go compiles its library first
)
def test_a_recipe_for_another_language(tmp_path, language):
    program, file, command = RECIPES[language]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (text,) = blocks("testing.md", language)
    (tmp_path / file).write_text(text)
    folder = tmp_path / "temporary"
    folder.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "TMPDIR": str(folder), "GOCACHE": str(tmp_path / "cache"), "GOTMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, env={**environment(), **own}, cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"bootstrap\.servers=127\.0\.0\.1:\d+\n", done.stdout), done.stdout + done.stderr
    assert list(folder.iterdir()) == []
