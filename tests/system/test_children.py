"""Processes of our own: nothing of the working directory runs in them, and nothing secret is among their words."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ottla
from ottla.pipelines import supervisor
from ottla.server.up.companions import Companions
from ottla.system.processes import own_command

SOURCE = Path(ottla.__file__).parent
NAMED = {"system/processes.py", "cli/verbs/shims.py", "cli/kafka/server_start.py", "pipelines/session.py"}
"""Who may name this Python: the one place, and those whose command has -P too."""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files that leave a mark when anybody imports them."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    mark = f"open({str(folder / 'ran')!r}, 'a').write(__name__ + ' ')\n"
    for name in ("click", "uvicorn", "json", "starlette", "confluent_kafka", "ottla", "helpers"):
        (folder / f"{name}.py").write_text(mark)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


def ran(folder: Path) -> str:
    return (folder / "ran").read_text() if (folder / "ran").exists() else ""


def test_without_the_flag_a_file_of_the_working_directory_runs(planted: Path) -> None:
    """What this is about: the plant works."""
    subprocess.run([sys.executable, "-m", "ottla.cli.main", "--help"], capture_output=True, check=False, timeout=60)
    assert ran(planted)


@pytest.mark.parametrize("words", [["registry", "--help"], ["console", "--help"], ["server", "start", "--help"]])
def test_a_command_of_our_own(planted: Path, words: list[str]) -> None:
    done = subprocess.run(own_command(*words), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not ran(planted)


def test_companions_and_supervised_processes(planted: Path, tmp_path: Path) -> None:
    beside = Companions()
    beside.start(["registry", "--help"])
    beside._processes[0].wait(60)
    beside.stop()
    pid = supervisor.start(str(tmp_path), "one", ["--help"], ("pipeline", "list"), cwd=str(planted))
    assert os.waitpid(pid, 0)[1] == 0, (tmp_path / "one.log").read_text()
    assert not ran(planted)


def test_a_worker_of_spark_imports_steps_by_name_and_not_from_where_it_runs(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from ottla.pipelines.session import _worker_python

    steps = tmp_path / "steps"
    steps.mkdir()
    (steps / "my_steps.py").write_text("print('mine')\n")
    done = subprocess.run(
        [_worker_python(), "-m", "my_steps"], env={**os.environ, "OTTLA_STEPS_PATH": str(steps)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.stdout, ran(planted)) == ("mine\n", ""), done.stderr
    done = subprocess.run([_worker_python(), "-m", "helpers"], capture_output=True, check=False, timeout=60)
    assert done.returncode != 0
    assert not ran(planted)


def test_every_child_of_our_own_is_started_in_one_way() -> None:
    """`sys.executable` and `-m` stand where they are known to go with -P, and nowhere else."""
    for file in SOURCE.rglob("*.py"):
        name, text = file.relative_to(SOURCE).as_posix(), file.read_text("utf-8")
        if "sys.executable" in text:
            assert name in NAMED, f"{name}: start children with own_command"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.List) and any(isinstance(e, ast.Constant) and e.value == "-m" for e in node.elts):
                words = [e.value for e in node.elts if isinstance(e, ast.Constant)]
                assert "-P" in words, f"{name}, line {node.lineno}"


def words_of(pid: int) -> str:
    return subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout  # fmt: skip


def test_what_may_be_secret_is_not_among_the_words(tmp_path: Path) -> None:
    """A process that waits for its command's file to be there: its words are looked at while it lives."""
    os.mkfifo(tmp_path / "waits.yaml")
    words = [str(tmp_path / "waits.yaml"), "--bootstrap-servers", "127.0.0.1:1", "--state", str(tmp_path),
             "--property", "sasl.password=s3cret=word", "--property", "sasl.username=ann"]  # fmt: skip
    pid = supervisor.start(str(tmp_path), "waits", words, ("connect", "run"), cwd=str(tmp_path))
    try:
        deadline = time.monotonic() + 60
        while "connect" not in (seen := words_of(pid)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "s3cret" not in seen
        assert "sasl" not in seen
        options = tmp_path / "waits.options.json"
        assert json.loads(options.read_text()) == {
            "property.sasl.password": "s3cret=word", "property.sasl.username": "ann",
        }  # fmt: skip
        assert options.stat().st_mode & 0o077 == 0
        assert (tmp_path / "waits.json").stat().st_mode & 0o077 == 0
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_a_start_of_a_pipeline_and_one_of_the_version_before_hide_the_same() -> None:
    words = ["/a/shop.py", "--name", "shop", "--property", "sasl.password=x", "--conf", "spark.hadoop.fs.s3a.secret.key=y",
             "--remote", "sc://h:1/;token=z", "--at-least-once"]  # fmt: skip
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"ottla-children-{os.getpid()}.options.json"
    try:
        shown = supervisor._hidden(words, str(folder))
        assert shown == ["/a/shop.py", "--name", "shop", "--at-least-once", "--settings", str(folder)]
        assert json.loads(folder.read_text()) == {
            "property.sasl.password": "x", "conf.spark.hadoop.fs.s3a.secret.key": "y", "remote": "sc://h:1/;token=z",
        }  # fmt: skip
    finally:
        folder.unlink(missing_ok=True)


def test_settings_of_spark_that_look_secret_go_by_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from ottla.pipelines.session import _SECRET, _in_a_file

    for name in ("spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "spark.ssl.keyPassword",
                 "spark.authenticate.secret", "spark.x.session.token"):  # fmt: skip
        assert _SECRET.search(name), name
    assert not _SECRET.search("spark.driver.memory")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name x pyspark-shell")
    with _in_a_file({"spark.hadoop.fs.s3a.secret.key": "a b=c#d\\e\u00e9"}):
        given = os.environ["PYSPARK_SUBMIT_ARGS"]
        path = re.search(r"--properties-file (\S+) --name x pyspark-shell$", given)
        assert path is not None
        assert "a b" not in given
        file = Path(path[1])
        assert file.stat().st_mode & 0o077 == 0
        assert file.read_text() == "spark.hadoop.fs.s3a.secret.key=a\\ b\\=c\\#d\\\\e\\u00e9\n"
    assert not file.exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name x pyspark-shell"
