"""Ottla's schema registry as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.interop.ottla_server import ROOT


@contextmanager
def schema_registry(bootstrap_servers: str) -> Iterator[str]:
    """Its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", "registry", "-b", bootstrap_servers, "-l", "127.0.0.1:0",
         "--alone", "--replication-factor", "1", "--until-stdin-closes"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:  # leaving it closes stdin, which ends the registry
        said = process.stdout.readline() if process.stdout is not None else ""
        found = re.search(r"http://\S+", said)
        if found is None:
            raise RuntimeError(f"the registry said {said!r} and no address")
        yield found[0]
