"""Ottla as a process of its own, with the face of ApacheKafka: same properties file, same folder, same ways to end it.

So either server can be started on a folder that the other one has left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.support.apache_kafka import CLUSTER_ID, ApacheKafka
from tests.support.kafka_tools import StorageTool, run_tool

ROOT = Path(__file__).resolve().parents[2]
OTTLA = (sys.executable, "-m", "ottla.cli.main")
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


class OttlaServer(ApacheKafka):
    def start(self, timeout: float = 60) -> Self:
        config = write_config(self)
        if not is_formatted(self):
            run_ottla("storage", "format", "-t", CLUSTER_ID, "-c", str(config))
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*OTTLA, "server", "start", str(config)],
                env=_ENVIRONMENT, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._await_ready(timeout)
        return self

    def _await_ready(self, timeout: float) -> None:
        try:
            super()._await_ready(timeout)
        except (RuntimeError, TimeoutError) as error:
            raise RuntimeError(str(error).replace("Apache Kafka", "Ottla")) from None


def write_config(server: ApacheKafka) -> Path:
    server.directory.mkdir(parents=True, exist_ok=True)
    config = server.directory / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in server.properties.items()))
    return config


def is_formatted(server: ApacheKafka) -> bool:
    return Path(server.properties["log.dirs"].split(",")[0], "meta.properties").exists()


def run_ottla(*words: str, timeout: float = 60) -> str:
    done = subprocess.run(
        [*OTTLA, *words], env=_ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ottla {' '.join(words)} failed: {done.stderr}{done.stdout}")
    return done.stdout


def format_dynamic(server: ApacheKafka) -> None:
    """Format for a dynamic quorum of this node alone (KIP-853), with the tool of that server."""
    server.properties["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{server.controller_port}"
    server.properties.pop("controller.quorum.voters", None)
    config = str(write_config(server))
    if isinstance(server, OttlaServer):
        run_ottla("storage", "format", "--standalone", "-t", CLUSTER_ID, "-c", config)
        return
    done = run_tool(StorageTool, "format", "--standalone", "-t", CLUSTER_ID, "-c", config)
    if done.returncode:
        raise RuntimeError(f"kafka-storage format failed: {done.stderr}{done.stdout}")


def hand_over(server: ApacheKafka, successor: type[ApacheKafka]) -> ApacheKafka:
    """The other kind of server, not yet started, on the folder, the ports and the properties of `server`."""
    heir = successor(server.directory, properties=server.properties)
    heir.port, heir.controller_port = server.port, server.controller_port
    return heir
