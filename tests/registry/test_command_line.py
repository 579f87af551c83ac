"""`ottla schema ...` and `ottla registry` as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.registry.instances import RegistryThread


class Shell:
    def __init__(self, url: str, folder: Path) -> None:
        self._url, self.folder = url, folder

    def __call__(self, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
        command = [sys.executable, "-m", "ottla.cli.main", "schema", "--url", self._url, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=50, input=stdin, cwd=self.folder, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name


@pytest.fixture
def ottla_schema(registry: RegistryThread, tmp_path: Path) -> Shell:
    return Shell(registry.url, tmp_path)


OLD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
NEW = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
BAD = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


@pytest.mark.timeout(180)
def test_a_day_with_schemas(ottla_schema: Shell) -> None:
    run, subject = ottla_schema, f"cli-{uuid.uuid4().hex[:8]}"
    old, new, bad = run.file("old.avsc", OLD), run.file("new.avsc", NEW), run.file("bad.avsc", BAD)
    assert f"{subject} version 1 has id" in run("register", subject, old)
    assert run("check", subject, new) == "compatible\n"
    told = run("check", subject, bad, code=1)
    assert "incompatible:" in told
    assert "/fields/0/type/  TYPE_MISMATCH" in told
    assert "[new reads old]" in told
    assert json.loads(run("-o", "json", "check", subject, bad, code=1))["is_compatible"] is False
    assert "version 2" in run("register", subject, "-", stdin=NEW)
    assert json.loads(run("get", subject)) == json.loads(NEW)
    assert json.loads(run("-o", "json", "get", subject, "1"))["version"] == 1
    shown = run("diff", subject, "1", "2")
    assert '+      "name": "b",' in shown
    assert "new reads old: yes" in shown
    assert "old reads new: yes" in shown
    listed = run("list", subject)
    assert listed.splitlines()[0].split() == ["SUBJECT", "VERSION", "VERSIONS", "ID", "TYPE"]
    assert listed.splitlines()[1].split()[:3] == [subject, "2", "2"]
    assert json.loads(run("-o", "json", "list", subject))[0]["type"] == "AVRO"
    assert "Delete" in run("delete", subject, "1", stdin="y\n")
    assert "deleted all versions" in run("delete", subject, "--yes")
    assert "40401" in run("get", subject, code=1)
    assert "deleted all versions" in run("delete", subject, "--permanent", "--yes")


@pytest.mark.timeout(180)
def test_other_languages_and_references(ottla_schema: Shell) -> None:
    run, subject = ottla_schema, f"cli-{uuid.uuid4().hex[:8]}"
    run.file("a.proto", 'syntax = "proto3"; package p; message A { int32 x = 1; }')
    run.file("b.proto", 'syntax = "proto3"; package p; import "a.proto"; message B { A a = 1; }')
    run("register", f"{subject}-a", "a.proto")
    run("register", subject, "b.proto", "-r", f"a.proto={subject}-a:1")
    assert 'import "a.proto";' in run("get", subject)
    run.file("c.json", '{"type":"object"}')
    run("register", f"{subject}-j", "c.json")


@pytest.mark.timeout(180)
def test_what_goes_wrong_is_one_line(ottla_schema: Shell, tmp_path: Path) -> None:
    run = ottla_schema
    assert run("get", "never-registered", code=1) == "ottla: Subject 'never-registered' not found. (40401)\n"
    assert "cannot read nowhere.avsc" in run("register", "s", "nowhere.avsc", code=2)
    assert "42201" in run("register", "s", run.file("x.avsc", "{"), code=1)
    nobody = Shell("http://127.0.0.1:1", tmp_path)
    assert nobody("list", code=1).startswith("ottla: the schema registry at http://127.0.0.1:1 does not answer: ")


@pytest.mark.timeout(180)
def test_a_registry_without_a_cluster_says_so() -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "registry", "-b", "127.0.0.1:1", "-l", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 2
    assert "is not HOST:PORT" in done.stderr
