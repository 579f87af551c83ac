"""The test bed: which servers run when, and one shared client JVM.

Loads of throughput and latency find both servers up and load one at a time: both brokers and the client stay warm, the
two measurements of a pair are seconds apart. The price: an idle Apache Kafka takes 3-6 % of a core (measured), which
counts against the other server's rate, not for it. Loads of starting, memory and growth get a fresh server and nothing
else beside it. Before each measurement dirty pages are written out and the servers are quiet, so that nobody pays for
the work of the run before.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.javaclient import JavaClient
from bench.plan import Sizes
from bench.process import cpu_seconds, wait_until_quiet
from bench.servers import Server
from bench.wire import AnswerError, Connection


class MismatchError(Exception):
    """What was measured is not what was asked for: records are missing, or there are too many."""


@dataclass(slots=True)
class Cpu:
    seconds: float = 0.0


@dataclass(slots=True)
class Bed:
    kinds: dict[str, type[Server]]  # by role
    sizes: Sizes
    folder: Path
    java: JavaClient = field(default_factory=JavaClient)
    # What a load prepared on a shared server (topics, warm-up), by role; forgotten when that server goes.
    prepared: dict[str, dict[str, Any]] = field(default_factory=dict)
    _shared: dict[str, Server] = field(default_factory=dict)
    _made: int = 0

    def name(self, what: str) -> str:
        self._made += 1
        return f"{what}-{self._made:05d}"

    def shared(self, role: str) -> Server:
        """The role's long-lived server; started when it is first asked for, and again if it died."""
        server = self._shared.get(role)
        if server is not None and server.alive:
            return server
        self.drop(role)
        server = self._new(role)
        self._shared[role] = server
        server.format()
        server.start(self.sizes.start_timeout_s)
        return server

    def first_time(self, role: str, what: str) -> bool:
        """Whether this is the first time that the role's server does this: then it has to warm up."""
        done = f"warm {what}" in self.prepared[role]
        self.prepared[role][f"warm {what}"] = True
        return not done

    def drop(self, role: str) -> None:
        self.prepared[role] = {}
        server = self._shared.pop(role, None)
        if server is not None:
            server.remove()

    def rest(self) -> None:
        """Remove the shared servers."""
        for role in list(self._shared):
            self.drop(role)

    @contextmanager
    def fresh(self, role: str) -> Iterator[Server]:
        """A formatted server that is not started yet, alone on the machine; removed at the end."""
        self.rest()
        server = self._new(role)
        try:
            server.format()
            self.settle()
            yield server
        finally:
            server.remove()

    def _new(self, role: str) -> Server:
        return self.kinds[role](self.folder / self.name(role))

    def settle(self, *, free_memory: bool = False) -> None:
        """Dirty pages are written out and the servers have come to rest.

        `free_memory` is for loads that write: a machine whose memory is full of cached files makes every write look
        for a page to give up, and the same bytes cost between 0.3 and 2.3 s/GB of CPU then, whoever writes them.
        """
        os.sync()
        if free_memory:
            drop_caches()
        wait_until_quiet([server.pid for server in self._shared.values() if server.alive])

    @contextmanager
    def topic(self, server: Server, partitions: int) -> Iterator[str]:
        """A new topic, deleted at the end so that the disk does not fill."""
        name = self.name("topic")
        create_topic(server, name, partitions)
        try:
            yield name
        finally:
            if server.alive:
                with Connection(server.port) as connection:
                    connection.delete_topic(name)

    def close(self) -> None:
        self.rest()
        self.java.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def drop_caches() -> bool:
    """Needs root; without it the rows are noisier, for both servers."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        return False
    return True


def create_topic(server: Server, name: str, partitions: int, timeout_s: float = 30.0) -> None:
    """Create and wait until every leader answers: Kafka's Metadata names a leader before that leader serves."""
    deadline = time.monotonic() + timeout_s
    with Connection(server.port) as connection:
        connection.create_topic(name, partitions)
        while True:
            try:
                connection.end_offsets(name, partitions)
            except AnswerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            else:
                return


def require_written(server: Server, topic: str, partitions: int, records: int) -> None:
    """The load counts only if exactly these records are in the log."""
    with Connection(server.port) as connection:
        written = sum(connection.end_offsets(topic, partitions))
    if written != records:
        raise MismatchError(f"{written} records in the log after writing {records}")


@contextmanager
def cpu_of(server: Server) -> Iterator[Cpu]:
    """The CPU seconds that the server used inside the block."""
    used = Cpu()
    before = cpu_seconds(server.pid)
    yield used
    used.seconds = cpu_seconds(server.pid) - before


def make_folder(parent: Path | None) -> Path:
    return Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=parent))
