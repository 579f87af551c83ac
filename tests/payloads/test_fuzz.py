"""Mutated Avro, JSON, Protobuf and batches: no crash, no traceback, bounded memory. In a process that may die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_PEAK_MIB = 600


def fuzz(payloads: int, timeout_s: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.payloads.fuzz", "--payloads", str(payloads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, int] = json.loads(done.stdout)
    assert found["answered"] + found["refused"] == payloads
    assert found["peak_mib"] < MAX_PEAK_MIB
    return found


@pytest.mark.timeout(180)
def test_mutated_payloads() -> None:
    found = fuzz(20_000, 170)
    assert found["refused"] > 1000
    assert found["answered"] > 1000


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_mutated_payloads() -> None:
    fuzz(1_000_000, 3500)
