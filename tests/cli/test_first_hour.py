"""What a newcomer does with nothing but `pip install ottla`: small things that ended in a traceback or lost words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.testing import Broker

LONG = "a value that is longer than a column of a table on a narrow screen would like it to be, and is all there"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.chdir(tmp_path)


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(ottla, list(words))
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output


def test_a_connector_is_listed_with_the_pipelines(tmp_path: Path) -> None:
    """A source reads no topic: it has no lag, and the list broke on that."""
    (tmp_path / "in.txt").write_text("a\nb\n")
    (tmp_path / "c.yaml").write_text("name: lines\nconnector.class: file-source\nfile: in.txt\ntopic: lines\n")
    words = [sys.executable, "-m", "ottla", "connect", "run", "c.yaml", "--once", "--state", "state"]
    subprocess.run(
        words, check=True, timeout=60, cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    listed = call("pipeline", "list", "--state", "state")
    assert listed.split() == ["lines", "finished", "2", "rows"]
    assert call("pipeline", "status", "lines", "--state", "state") == listed


def test_sql_into_a_pipe_cuts_nothing() -> None:
    call("produce", "words", LONG)
    shown = call("sql", "select *, value as again from words")
    assert shown.count(LONG) >= 3
    assert "timestampType" in shown


@pytest.mark.parametrize(
    ("kind", "package"),
    [("delta-sink", "deltalake"), ("iceberg-sink", "pyiceberg"), ("sql-sink", "adbc_driver_sqlite")],
)
def test_a_sink_whose_library_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker, kind: str, package: str
) -> None:
    from ottla.connect.config import load_config
    from ottla.connect.worker import run_connector
    from ottla.model.user_error import UserError

    call("produce", "rows", '{"id": 1}')
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "c.yaml").write_text(
        f"name: c\nconnector.class: {kind}\ntopics: rows\npath: out\nconnection.url: sqlite:///x.db\n"
        "warehouse: w\ncatalog.uri: sqlite:///c.db\ntable: t.p\n"
    )
    with pytest.raises(UserError, match=rf"needs {package}, .*: pip install 'ottla\[spark\]'"):
        run_connector(load_config("c.yaml"), {"bootstrap.servers": broker.bootstrap_servers}, once=True)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """`ottla ... | head -1`."""
    call("produce", "listed", "x")
    read, write = os.pipe()
    os.close(read)
    try:
        words = [sys.executable, "-m", "ottla", "topic", "list", "--internal"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            words, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, env=environment, check=False
        )
    finally:
        os.close(write)
    assert done.stderr == ""
