"""`python -m ottla.demo` is what `make demo` runs."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.robustness.server_process import ROOT, environment


def demo(tmp_path, *, without_client: bool = False) -> subprocess.CompletedProcess[str]:
    env = environment() | {"COLUMNS": "120", "TMPDIR": str(tmp_path)}
    if without_client:
        (tmp_path / "confluent_kafka.py").write_text("raise ImportError\n")
        env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    return subprocess.run(
        [sys.executable, "-m", "ottla.demo"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=40, check=False,
    )  # fmt: skip


def test_the_demo_runs(tmp_path):
    started = time.monotonic()
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "looked at" in done.stdout
    assert "MiB" in done.stdout
    assert done.stderr == ""
    assert time.monotonic() - started < 20  # 3 s on an idle machine
    assert list(tmp_path.iterdir()) == [], "something was left behind"


def test_without_a_client_it_says_so(tmp_path):
    done = demo(tmp_path, without_client=True)
    assert done.returncode == 1
    assert done.stderr == "ottla: the demo needs a Kafka client: pip install confluent-kafka\n"
