"""A cluster of real processes: nodes that can be killed, stopped and continued one by one or all at once."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.server.up.cluster import PlannedNode, prepare
from tests.robustness.server_process import COMMAND, ROOT, environment, ottla
from tests.support.frames import RawConnection
from tests.support.ports import free_ports

HOST = "127.0.0.1"


class ClusterProcess:
    """`count` nodes as `ottla up --nodes` lays them out, each started as `ottla server start` does."""

    def __init__(self, directory: Path, count: int = 3, properties: dict[str, str] | None = None) -> None:
        ports = iter(free_ports(3 * count))
        self.nodes = {
            i: PlannedNode(i, directory / f"node-{i}", next(ports), next(ports), next(ports))
            for i in range(1, count + 1)
        }
        self.prepare()
        for node in self.nodes.values():
            with node.properties.open("a") as file:
                file.writelines(f"{name}={value}\n" for name, value in (properties or {}).items())
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.bootstrap_servers = ",".join(f"{HOST}:{node.port}" for node in self.nodes.values())

    def prepare(self) -> None:
        """Writes and formats the folders of all nodes."""
        prepare(list(self.nodes.values()), HOST)

    def add_directories(self, node_id: int, *directories: Path) -> None:
        """More log directories for a node that has not started yet."""
        node = self.nodes[node_id]
        first = self.data_dirs(node_id)[0]
        text = node.properties.read_text()
        listed = ",".join(map(str, (first, *directories)))
        node.properties.write_text(text.replace(f"log.dirs={first}\n", f"log.dirs={listed}\n"))
        lines = (first / "meta.properties").read_text().splitlines()
        cluster_id = next(line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))
        done = ottla(
            "storage", "format", "-t", cluster_id, "-c", node.properties, "--ignore-formatted",
            "--no-initial-controllers",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def data_dirs(self, node_id: int) -> list[Path]:
        text = self.nodes[node_id].properties.read_text()
        line = next(line for line in text.splitlines() if line.startswith("log.dirs="))
        return [Path(part) for part in line.removeprefix("log.dirs=").split(",")]

    def __enter__(self) -> Self:
        for node_id in self.nodes:
            self.start(node_id)
        self.wait_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        with (node.directory / "ottla.log").open("ab") as output:
            self.processes[node_id] = subprocess.Popen(
                self.command(node), stdout=output, stderr=output, env=self.environment(node_id), cwd=ROOT
            )

    def environment(self, node_id: int) -> dict[str, str]:
        """That of a node's process."""
        del node_id
        return environment()

    def command(self, node: PlannedNode) -> list[str]:
        """What a node's process is started with."""
        return [*COMMAND, "server", "start", str(node.properties)]

    def up(self, node_id: int) -> bool:
        """It answers and lists every node: one that has just started is fenced for a moment, and listed by nobody."""
        assert self.processes[node_id].poll() is None, self.log(node_id)
        try:
            with RawConnection(HOST, self.nodes[node_id].port, timeout=5) as connection:
                listed = connection.request(3, 1, struct.pack(">i", 0))
        except (OSError, EOFError):
            return False
        return listed is not None and struct.unpack_from(">i", listed) == (len(self.nodes),)

    def wait_up(self, timeout: float = 120) -> None:
        wait_for(lambda: all(self.up(node_id) for node_id in self.nodes), timeout, "not all nodes are up")

    def signal(self, node_id: int, number: signal.Signals) -> None:
        os.kill(self.processes[node_id].pid, number)

    def kill(self, node_id: int) -> None:
        self.processes[node_id].kill()
        self.processes[node_id].wait()

    def stop(self, node_id: int, timeout: float = 60) -> None:
        self.processes[node_id].terminate()
        assert self.processes[node_id].wait(timeout) == 0, self.log(node_id)

    def log(self, node_id: int) -> str:
        text = (self.nodes[node_id].directory / "ottla.log").read_text()
        return f"node {node_id}:\n{text[-3000:]}"


def wait_for(condition: Callable[[], bool], timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
