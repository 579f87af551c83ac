"""`ottla up --ephemeral --print-json`: a log for tests in any language, over one pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from ottla.cli.verbs.up import up
from tests.robustness.server_process import environment


@contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "up", "--ephemeral", *options],
        env={**environment(), "TMPDIR": str(folder)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=120)


def output(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_one_line_of_json_until_the_input_closes(tmp_path):
    with started(tmp_path, "--print-json") as process:
        facts = json.loads(output(process))
        assert set(facts) == {"bootstrap_servers", "registry", "console", "pid"}
        assert facts["pid"] == process.pid
        assert AdminClient({"bootstrap.servers": facts["bootstrap_servers"]}).list_topics(timeout=60).brokers
        for name in ("registry", "console"):
            with urlopen(facts[name], timeout=60) as answer:
                assert answer.status == 200
        assert len(list(tmp_path.iterdir())) == 1
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        assert process.wait(120) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert list(tmp_path.iterdir()) == []


def test_sigterm_and_words(tmp_path):
    with started(tmp_path, "--no-registry", "--no-console") as process:
        words = output(process)
        assert words.startswith("ottla is up: bootstrap_servers=127.0.0.1:")
        assert words.endswith(f"pid={process.pid}\n")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(120) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_cluster(tmp_path):
    with started(tmp_path, "--print-json", "--nodes", "2", "--no-registry", "--no-console") as process:
        facts = json.loads(output(process))
        assert len(facts["bootstrap_servers"].split(",")) == 2
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        assert process.wait(120) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--print-json"], "--print-json needs --ephemeral"),
        (["--ephemeral", "--dir", "x"], "--ephemeral and --dir cannot be combined"),
        (["--ephemeral", "--registry-port", "1"], "--ephemeral and --registry-port cannot be combined"),
    ],
)
def test_options_that_do_not_fit(options, words):
    done = CliRunner().invoke(up, options)
    assert done.exit_code == 2
    assert words in done.output
