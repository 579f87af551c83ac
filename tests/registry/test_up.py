"""`ottla up` brings a registry along: after the node, gone with it, and never in its way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.registry.instances import call, register, until
from tests.support.ports import free_port, free_ports


class Up:
    def __init__(self, directory: Path, registry_port: int) -> None:
        self.log = directory / "log"
        self.registry = f"http://127.0.0.1:{registry_port}"
        command = [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "up",
            "--dir",
            str(directory / "d"),
            "--port",
            str(free_ports(3)[0]),
        ]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--registry-port", str(registry_port), "--no-console"], stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def gone(self) -> bool:
        try:
            call(self.registry, "GET", "/", timeout=2)
        except OSError:
            return True
        return False


def test_up_starts_a_registry_and_stops_it(tmp_path: Path) -> None:
    up = Up(tmp_path, free_port())
    try:
        until(lambda: up.said("registry is up at"), 50)
        assert register(up.registry, "s", '"string"')[1]["id"] == 1
    finally:
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(30) == 0
    assert up.gone()
    assert not up.said("Traceback")


def test_the_registry_ends_with_a_node_that_is_killed(tmp_path: Path) -> None:
    up = Up(tmp_path, free_port())
    until(lambda: up.said("registry is up at"), 50)
    up.process.kill()
    up.process.wait(30)
    until(up.gone, 50, "the end of the registry")


def test_a_port_in_use_is_one_line_and_the_node_goes_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up = Up(tmp_path, taken.getsockname()[1])
        try:
            line = f"the schema registry does not start, because 127.0.0.1:{taken.getsockname()[1]} is in use: choose a port"
            until(lambda: up.said(line), 50)
            until(lambda: up.said("ottla is up at"), 50)
            assert up.process.poll() is None
        finally:
            up.process.send_signal(signal.SIGINT)
            assert up.process.wait(30) == 0
