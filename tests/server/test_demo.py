"""`python -m ottla.demo` is what `make demo` runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.console.cluster.collect import collect
from ottla.console.cluster.history import History
from ottla.console.pages.overview import concerns
from ottla.demo.__main__ import a_log
from ottla.testing import Broker
from tests.robustness.server_process import ROOT, environment
from tests.upgrade import observations as observe


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
    """It checks its own counts; here only that it got there, Spark's start included, and that the console has no alarm."""
    with Broker() as broker:
        done = demo(tmp_path, "--bootstrap-servers", broker.bootstrap_servers)
        assert done.returncode == 0, done.stderr + done.stdout
        history = History()
        with observe.connected(broker.bootstrap_servers) as cluster:
            snapshot = collect(cluster)
        history.add(snapshot)
    assert [concern.text for concern in concerns(snapshot, history.lags(snapshot))] == []
    assert {group.partition(".")[0] for group in snapshot.groups} == {"home", "web"}
    for words in ("top pages", "hits per minute", "true at", "visits", "alerts", "broken readings", "exactly once"):
        assert words in done.stdout
    assert done.stderr == ""
    left = [one.name for one in tmp_path.iterdir() if one.name.startswith("ottla-demo")]
    assert left == [], "something was left behind"


def test_the_demo_brings_its_own_log():
    with a_log(None) as servers, observe.connected(servers) as cluster:
        assert len(collect(cluster).brokers) == 1


def test_without_a_client_it_says_so(tmp_path):
    done = demo(tmp_path, without="confluent_kafka")
    assert done.returncode == 1
    assert done.stderr == "ottla: the demo needs confluent_kafka: pip install confluent-kafka\n"
