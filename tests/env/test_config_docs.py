"""The docs page and the sample file come from the table and are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.group import ClientMetricsConfig, GroupConfig
from ottla.env.config.load import load_text, no_effect_line
from ottla.env.config.properties import parse_properties
from ottla.env.config.sample import ONE_NODE, annotated
from ottla.env.config.settings import Settings
from ottla.env.config.topic import TopicConfig

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, "-m", "tools.config_docs", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("table", [BrokerConfig, TopicConfig, GroupConfig, ClientMetricsConfig])
def test_the_page_names_every_setting(table: type[Settings]) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert [name for name in table.TABLE if f"| `{name}` |" not in page] == []


def test_the_sample_file_loads() -> None:
    text = annotated(ONE_NODE)
    assert parse_properties(text) == ONE_NODE
    config = load_text(text)
    assert (config.is_broker, config.is_controller) == (True, True)
    assert no_effect_line(config) is None
    assert text.startswith("# What this node does: broker, controller, or both.\nprocess.roles=broker,controller\n")
