"""kcat, librdkafka's command-line client."""

from __future__ import annotations

import subprocess

from tests.support.debian import debian_command


def kcat() -> str:
    """The kcat command; Unavailable says why there is none."""
    return debian_command("kcat", "kcat")


def run_kcat(*args: str, input: str | None = None, timeout: float = 30) -> subprocess.CompletedProcess[str]:  # noqa: A002 - as subprocess.run
    return subprocess.run(
        [kcat(), *args], input=input or "", capture_output=True, text=True, timeout=timeout, check=False
    )
