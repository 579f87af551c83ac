"""The two servers of a comparison, started from the same properties.

Ottla runs as a process of its own (`python -m ottla.cli.main server start`), as a user would start it, so that its log
can be searched for tracebacks. With DIFFERENTIAL_CANDIDATE=apache-kafka a second Apache Kafka takes its place: then
every difference is one of nature or of the tester.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.apache_kafka import CLUSTER_ID, ApacheKafka

ROOT = Path(__file__).resolve().parents[3]
PROPERTIES = {
    "offsets.topic.num.partitions": "1",  # 50 would only cost time
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.retention.ms": "-1",  # the records are from 2023
    "producer.id.expiration.check.interval.ms": "86400000",  # and so are their producers
    "num.partitions": "2",
    "group.min.session.timeout.ms": "1000",
    "connections.max.idle.ms": "600000",
}
"""For both servers, beside what ApacheKafka sets by itself."""


class Address(NamedTuple):
    name: str
    port: int
    controller_port: int
    directory: Path
    log_file: Path


class OttlaProcess:
    """Ottla started from the properties file of an ApacheKafka that is never started itself."""

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self._twin = ApacheKafka(directory, properties=properties)
        self.address = Address("ottla", self._twin.port, self._twin.controller_port, directory, self._twin.log_file)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float = 60) -> None:
        config = self.address.directory / "server.properties"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text("".join(f"{name}={value}\n" for name, value in self._twin.properties.items()))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", "ottla.cli.main"]
        subprocess.run(
            [*command, "storage", "format", "-t", CLUSTER_ID, "-c", str(config)],
            env=environment, check=True, timeout=60, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        with self.address.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "server", "start", str(config)],
                env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        deadline = time.monotonic() + timeout
        while not self._twin._answers_metadata():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Ottla did not start:\n{self._twin.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


@contextmanager
def two_servers(directory: Path, properties: Mapping[str, str] | None = None) -> Iterator[tuple[Address, Address]]:
    """Apache Kafka and Ottla, from the same properties, stopped at the end."""
    wanted = {**PROPERTIES, **(properties or {})}
    with ExitStack() as stack:
        reference = _apache(stack, directory / "reference", wanted, "apache")
        if os.environ.get("DIFFERENTIAL_CANDIDATE") == "apache-kafka":
            yield reference, _apache(stack, directory / "candidate", wanted, "ottla")
            return
        ottla = OttlaProcess(directory / "candidate", _own_dirs(wanted, directory / "candidate"))
        stack.callback(ottla.stop)
        ottla.start()
        yield reference, ottla.address


def _apache(stack: ExitStack, directory: Path, properties: Mapping[str, str], name: str) -> Address:
    kafka = ApacheKafka(directory, properties=_own_dirs(properties, directory))
    stack.callback(kafka.kill)
    kafka.start()
    return Address(name, kafka.port, kafka.controller_port, directory, kafka.log_file)


def _own_dirs(properties: Mapping[str, str], directory: Path) -> dict[str, str]:
    """`{dir}` in a value is the server's own folder."""
    return {name: value.replace("{dir}", str(directory)) for name, value in properties.items()}
