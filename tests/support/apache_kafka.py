"""Real Apache Kafka 4.3.1: one KRaft node (broker and controller) on loopback, for tests and for bench.

The node's folder survives stop, kill and restart, so that recovery can be tested; a temporary folder goes with the
context manager. Tests use a JVM that starts fast (TEST_JVM), bench the one that Kafka's own scripts would (BENCH_JVM).
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.frames import RawConnection
from tests.support.kafka_jars import Unavailable, fetch, schemas
from tests.support.kafka_tools import SHARED_CLASSES, StorageTool, jvm_command, run_tool, start_tool
from tests.support.leaders import leads_its_partitions
from tests.support.ports import free_ports

__all__ = [
    "BENCH_JVM", "TEST_JVM", "ApacheKafka", "Unavailable", "fetch", "run_tool", "schemas", "start_tool",
]  # fmt: skip

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
TEST_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", SHARED_CLASSES)
BENCH_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")


class ApacheKafka:
    def __init__(
        self,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = TEST_JVM,
        log_level: str = "warn",
    ) -> None:
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.port, self.controller_port = free_ports(2)
        self.data_dir = self.directory / "data"
        self.log_file = self.directory / "server.log"
        self.properties = {**self._defaults(), **(properties or {})}
        self._jvm_options = jvm_options
        self._log_level = log_level
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._process.pid

    def start(self, timeout: float = 90) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        first_dir = Path(self.properties["log.dirs"].split(",")[0])
        if not (first_dir / "meta.properties").exists():
            done = run_tool(StorageTool, "format", "-t", CLUSTER_ID, "-c", str(config))
            if done.returncode:
                raise RuntimeError(f"kafka-storage format failed: {done.stderr}{done.stdout}")
        command = jvm_command(self._jvm_options, "kafka.Kafka", str(config), log_level=self._log_level)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self._await_ready(timeout)
        return self

    def stop(self, timeout: float = 30) -> None:
        """A clean shutdown (SIGTERM), killed when it takes longer than `timeout` seconds."""
        self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        self._end(signal.SIGKILL, 10)

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill() if self._temporary else self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _defaults(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def _await_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"Apache Kafka ended while starting:\n{self.log_tail()}")
            if self._answers_metadata() and leads_its_partitions(self.port, int(self.properties["node.id"])):
                return
            time.sleep(0.05)
        raise TimeoutError(f"Apache Kafka did not answer within {timeout:.0f} s:\n{self.log_tail()}")

    def _answers_metadata(self) -> bool:
        """Whether Metadata v1 (no topics) lists a broker: then it is unfenced and takes requests."""
        try:
            with RawConnection("127.0.0.1", self.port, timeout=5) as connection:
                body = connection.request(3, 1, struct.pack(">i", 0))
        except OSError:
            return False
        return body is not None and struct.unpack(">i", body[:4])[0] > 0

    def _end(self, sent: signal.Signals, timeout: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, sent)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
