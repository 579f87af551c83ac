"""`python -m ottla.demo` is what `make demo` runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.robustness.server_process import ROOT, environment


def demo(tmp_path, *words: str, without: str = "") -> subprocess.CompletedProcess[str]:
    env = environment() | {"COLUMNS": "120", "TMPDIR": str(tmp_path)}
    if without:
        (tmp_path / "sitecustomize.py").write_text(
            "import importlib.util as u\n"
            "find = u.find_spec\n"
            f"u.find_spec = lambda name, *rest: None if name == {without!r} else find(name, *rest)\n"
        )
        env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    return subprocess.run(
        [sys.executable, "-m", "ottla.demo", *words],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


@pytest.mark.timeout(300)
def test_the_demo_runs(tmp_path):
    """It checks its own counts; here only that it got there, Spark's start included."""
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    for words in ("top pages", "hits per minute", "true at", "visits", "alerts", "broken readings", "exactly once"):
        assert words in done.stdout
    assert done.stderr == ""
    left = [one.name for one in tmp_path.iterdir() if one.name.startswith("ottla-demo")]
    assert left == [], "something was left behind"


def test_without_a_client_it_says_so(tmp_path):
    done = demo(tmp_path, without="confluent_kafka")
    assert done.returncode == 1
    assert done.stderr == "ottla: the demo needs confluent_kafka: pip install confluent-kafka\n"
