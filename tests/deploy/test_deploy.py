"""What is in deploy/: rules that promtool takes, names that exist, units and YAML that parse."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ottla.server.exposition import METRICS
from tests.support.debian import debian_command
from tests.support.kafka_jars import Unavailable

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
CONSOLE_METRICS = {"ottla_group_lag_records", "ottla_group_lag_seconds", "ottla_console_look_seconds"}
KNOWN = {metric.name for metric in METRICS} | CONSOLE_METRICS | {"up"}
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


def test_the_dashboard_names_only_metrics_that_exist() -> None:
    board = json.loads((DEPLOY / "grafana/ottla.json").read_text())
    used = {name for panel in board["panels"] for target in panel["targets"] for name in names_in(target["expr"])}
    assert len(used) >= 10
    assert used <= KNOWN


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_units_have_what_systemd_needs(unit: str) -> None:
    text = (DEPLOY / "systemd" / unit).read_text()
    assert {"[Unit]", "[Service]", "[Install]"} <= set(text.splitlines())
    assert re.search(r"^ExecStart=/usr/local/bin/ottla (server start|console) ", text, re.MULTILINE)
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        done = subprocess.run(
            [analyze, "verify", "--man=no", str(DEPLOY / "systemd" / unit)],
            capture_output=True, text=True, timeout=40, check=False,
        )  # fmt: skip
        wrong = [line for line in done.stderr.splitlines() if "Unknown" in line or "Failed to parse" in line]
        assert wrong == []


def test_the_chart_parses() -> None:
    chart = DEPLOY / "helm/ottla"
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["apiVersion"] == "v2"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    used = {
        name
        for template in (chart / "templates").glob("*.yaml")
        for name in re.findall(r"\.Values\.(\w+)", template.read_text())
    }
    assert used <= set(values)


def test_the_image_uses_what_the_project_has() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text()
    assert 'ENTRYPOINT ["ottla"]' in text
    assert "/readyz" in text
