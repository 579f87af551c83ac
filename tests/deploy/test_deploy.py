"""What is in deploy/: rules that promtool takes, names that exist, units, a chart that helm takes, an image's own steps."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from ottla.pipelines.metrics import METRICS as PIPELINE_METRICS
from ottla.server.monitoring.exposition import METRICS
from tests.support.debian import debian_command
from tests.support.hadolint import hadolint
from tests.support.kafka_jars import Unavailable
from tests.support.ports import free_ports
from tests.support.whole_answers import whole

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
CONSOLE_METRICS = {"ottla_group_lag_records", "ottla_group_lag_seconds", "ottla_console_look_seconds"}
KNOWN = {metric.name for metric in (*METRICS, *PIPELINE_METRICS)} | CONSOLE_METRICS | {"up"}
NAME = re.compile(r"\b((?:kafka|ottla|process)_\w+)\b(?!\s*=)")


def names_in(expression: str) -> set[str]:
    return set(NAME.findall(re.sub(r"\{[^}]*\}", "", expression)))


@pytest.mark.interop
def test_promtool_takes_the_rules() -> None:
    try:
        promtool = debian_command("promtool", "prometheus", 200)
    except Unavailable as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [promtool, "check", "rules", str(DEPLOY / "prometheus/ottla.rules.yml")],
        capture_output=True, text=True, timeout=40, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_name_only_metrics_that_exist() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/ottla.rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 8
    for rule in alerts:
        assert names_in(rule["expr"]) <= KNOWN, rule["alert"]
        assert rule["annotations"]["what_to_do"]


@pytest.mark.parametrize("name", sorted(path.name for path in (DEPLOY / "grafana").iterdir()))
def test_a_dashboard_names_only_metrics_that_exist(name: str) -> None:
    board = json.loads((DEPLOY / "grafana" / name).read_text())
    used = {name for panel in board["panels"] for target in panel["targets"] for name in names_in(target["expr"])}
    assert len(used) >= 10
    assert used <= KNOWN


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_units_have_what_systemd_needs(unit: str) -> None:
    text = (DEPLOY / "systemd" / unit).read_text()
    assert {"[Unit]", "[Service]", "[Install]"} <= set(text.splitlines())
    assert re.search(r"^ExecStart=/usr/local/bin/ottla (server start|console) ", text, re.MULTILINE)


@pytest.mark.interop
@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_systemd_takes_the_units(unit: str, tmp_path: Path) -> None:
    """Where Ottla is not installed the program stands in for it; everything else must pass without a word."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on PATH (a machine with systemd has it)")
    text = (DEPLOY / "systemd" / unit).read_text()
    for wrong in ("", "Restrat=no\n"):
        copy = tmp_path / unit
        copy.write_text(text.replace("/usr/local/bin/ottla", sys.executable).replace("[Install]", f"{wrong}[Install]"))
        done = subprocess.run(
            [analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=40, check=False
        )
        complaints = [line for line in done.stderr.splitlines() if unit in line]
        assert bool(complaints) == bool(wrong), done.stderr


SANDBOX = {
    "UMask=0077", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "MemoryDenyWriteExecute=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "SystemCallFilter=@system-service", "SystemCallArchitectures=native",
    "PrivateTmp=yes", "PrivateDevices=yes", "ProtectHome=yes", "LockPersonality=yes", "RestrictNamespaces=yes",
}  # fmt: skip


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_units_are_closed_in(unit: str) -> None:
    lines = set((DEPLOY / "systemd" / unit).read_text().splitlines())
    assert lines >= SANDBOX
    assert {line.partition("=")[0] for line in lines} >= {"MemoryMax", "TasksMax"}


@pytest.mark.interop
@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_systemd_finds_little_exposed(unit: str) -> None:
    """`systemd-analyze security`: 10 is everything, 0 nothing; a network service cannot be much below 1."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on PATH (a machine with systemd has it)")
    command = [analyze, "security", "--offline=true", "--no-pager", str(DEPLOY / "systemd" / unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze knows no --offline: {done.stderr.strip()[:100]}")
    assert float(found[1]) <= 1.5, done.stdout


def test_the_image_uses_what_the_project_has() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text()
    assert 'ENTRYPOINT ["ottla"]' in text
    assert "/readyz" in text
    assert "USER 10001" in text, "an image that runs as root is refused by careful clusters"
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs), "the lock is the law"
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert {"!requirements-sql.lock", "!requirements-dev.lock"} <= set(ignored)


def test_the_image_builds_with_hashed_tools_only() -> None:
    """The Dockerfile's own awk takes the build backend, and all that it needs, out of the lock."""
    text = (DEPLOY / "docker/Dockerfile").read_text()
    program = re.search(r"awk '([^']+)'", text)
    assert program is not None
    done = subprocess.run(
        ["awk", program[1], str(DEPLOY.parent / "requirements-dev.lock")],
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    pinned = set(re.findall(r"^([a-z-]+)==", done.stdout, re.MULTILINE))
    needed = {"hatchling"}
    for requirement in importlib.metadata.requires("hatchling") or ():
        name, _, marker = requirement.partition(";")
        if "python_version" not in marker:
            needed.add(re.split(r"[<>=!~ ]", name.strip(), maxsplit=1)[0])
    assert pinned == needed
    assert done.stdout.count("--hash=sha256:") >= len(pinned)


@pytest.mark.timeout(180)
def test_what_the_image_installs_and_runs_works(tmp_path: Path) -> None:
    """No engine and no registry here: the Dockerfile's own steps by hand. A wheel, installed alone, and its CMD."""
    packed = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(DEPLOY.parent)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert packed.returncode == 0, packed.stderr
    (wheel,) = tmp_path.glob("ottla-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    text = (DEPLOY / "docker/Dockerfile").read_text()
    words = json.loads(re.search(r"^CMD (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]  # it has one
    first, _, _, registry, console = free_ports(5)
    command = [sys.executable, "-m", "ottla.cli.main", *words, "--port", str(first), "--registry-port", str(registry),
               "--console-port", str(console)]  # fmt: skip
    command[command.index("/var/lib/ottla")] = str(tmp_path / "data")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    refused = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 1, "the image's own command opens nothing without being told"
    assert "--allow-open" in refused.stderr
    environment["OTTLA_ALLOW_OPEN"] = "1"
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            assert until(f"http://127.0.0.1:{first + 2}/readyz") == b"ready\n"
            assert until(f"http://127.0.0.1:{registry}/subjects") == b"[]"
            assert until(f"http://127.0.0.1:{console}/readyz") == b"ready\n"
            assert b"<h1>Topics</h1>" in until(f"http://127.0.0.1:{console}/topics")
            assert b"htmx" in until(f"http://127.0.0.1:{console}/static/vendor/htmx.min.js")
            written = (tmp_path / "data/server.properties").read_text()
            assert f"advertised.listeners=PLAINTEXT://{socket.gethostname()}:" in written
        finally:
            process.terminate()
            process.wait(30)


def until(url: str, seconds: float = 60) -> bytes:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urlopen(url, timeout=10) as answer:
                return whole(answer)
        except (OSError, URLError, HTTPException):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@pytest.mark.interop
def test_hadolint_takes_the_dockerfile() -> None:
    try:
        program = hadolint()
    except Unavailable as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [program, str(DEPLOY / "docker/Dockerfile")], capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 0, done.stdout
