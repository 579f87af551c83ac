"""A real PostgreSQL in a folder of its own, on a free loopback port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.debian import debian_command
from tests.support.kafka_jars import Unavailable
from tests.support.ports import free_port


def _binaries() -> str:
    found = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    if not found:
        debian_command("pg_ctlcluster", "postgresql", 300)
        found = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    if not found:
        raise Unavailable("Debian's postgresql has no binaries where they should be")
    return found[-1]


@contextmanager
def postgresql() -> Iterator[str]:
    """Its address; the server refuses to run as root, so it then runs as the user postgres."""
    binaries = _binaries()
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = tempfile.mkdtemp(prefix="ottla-pg-")
    port = free_port()
    try:
        if as_user:
            shutil.chown(folder, "postgres")
        _run([*as_user, f"{binaries}/initdb", "-D", f"{folder}/data", "-U", "ottla", "--auth=trust", "--no-sync"])
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        control = [*as_user, f"{binaries}/pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log"]
        _run([*control, "-o", options, "start"])
        try:
            yield f"postgresql://ottla@127.0.0.1:{port}/postgres"
        finally:
            _run([*control, "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, check=False, cwd="/"
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
