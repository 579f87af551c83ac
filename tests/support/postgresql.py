"""A real PostgreSQL in a folder of its own, on a free loopback port."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ottla.system.processes import is_zombie, started_at
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


class PostgreSql:
    """A server that survives `kill` and `start`, as ApacheKafka does."""

    def __init__(self) -> None:
        self._binaries = _binaries()
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self._folder = tempfile.mkdtemp(prefix="ottla-pg-")
        self.port = free_port()
        self.address = f"postgresql://ottla@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        if self._as_user:
            shutil.chown(self._folder, "postgres")
        data = f"{self._folder}/data"
        _run([*self._as_user, f"{self._binaries}/initdb", "-D", data, "-U", "ottla", "--auth=trust", "--no-sync"])

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder} -c fsync=off"
        self._control("-o", options, "start")

    def stop(self) -> None:
        if self._postmaster() is not None:
            self._control("-m", "immediate", "stop")

    def kill(self) -> None:
        """SIGKILL to the postmaster and to its backends, which have process groups of their own, and waits for their end."""
        postmaster = self._postmaster()
        if postmaster is None:
            return
        os.kill(postmaster, signal.SIGSTOP)  # it makes no further backend
        pids = [*children_of(postmaster), postmaster]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 120
        while any(started_at(pid) is not None and not is_zombie(pid) for pid in pids):
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of PostgreSQL outlive SIGKILL: {pids}")
            time.sleep(0.02)
        # A zombie that nobody reaps looks alive to the next server, which then respects its lock files.
        for lock in (Path(self._folder, "data", "postmaster.pid"), *Path(self._folder).glob(".s.PGSQL.*")):
            lock.unlink(missing_ok=True)

    def _postmaster(self) -> int | None:
        """Its process id while it runs."""
        try:
            pid = int(Path(f"{self._folder}/data/postmaster.pid").read_text().splitlines()[0])
        except FileNotFoundError:
            return None
        return pid if started_at(pid) is not None and not is_zombie(pid) else None

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _control(self, *words: str) -> None:
        folder = self._folder
        _run([*self._as_user, f"{self._binaries}/pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log", *words])


def children_of(parent: int) -> list[int]:
    """The processes whose parent it is."""
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    children.append(int(entry.name))
    return children


@contextmanager
def postgresql_server() -> Iterator[PostgreSql]:
    """The server refuses to run as root, so it then runs as the user postgres."""
    server = PostgreSql()
    try:
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        server.remove()


@contextmanager
def postgresql() -> Iterator[str]:
    """Its address."""
    with postgresql_server() as server:
        yield server.address


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, check=False, cwd="/"
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
