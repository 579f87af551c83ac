"""The two servers behind one interface: a folder, a formatted log directory, one process, one address.

Both get the same server.properties, with Kafka's names and defaults except for what one node on one machine needs, and
both are formatted before they are started, so that `start` measures starting. A server writes only below its folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from tests.support.apache_kafka import BENCH_JVM
from tests.support.kafka_jars import VERSION, classpath, java
from tests.support.ports import free_port

from bench.wire import Connection, WireError
from ottla.model.ids import new_uuid, uuid_to_str

ROOT = Path(__file__).resolve().parent.parent

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=500
log.segment.delete.delay.ms=1000
"""


class ServerError(Exception):
    """A server did not start, or is gone."""


class Server(ABC):
    """One node in one folder. `start` may be called again after `stop` or `kill`: the data stay."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._controller_port = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _tool(self, *arguments: str) -> list[str]:
        """The command that formats the storage."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def version(self) -> str: ...

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.properties.write_text(
            _PROPERTIES.format(port=self.port, controller_port=self._controller_port, folder=self.folder)
        )
        # By Kafka's rule for random ids: one that began with a dash would be taken for a flag.
        cluster_id = uuid_to_str(new_uuid(os.urandom))
        command = self._tool("format", "-t", cluster_id, "-c", str(self.properties), "--standalone")
        done = subprocess.run(command, capture_output=True, timeout=60, env=self._environment(), check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise ServerError(
                f"{self.name}: format failed: {said.splitlines()[-1] if said else done.returncode}\n{said}"
            )

    def spawn(self) -> None:
        """Start the process and return at once."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment()
            )

    def start(self, timeout_s: float = 60.0) -> float:
        """Start and wait for the first Metadata answer that names the broker; the seconds that took."""
        began = time.perf_counter()
        self.spawn()
        self.await_answer(timeout_s)
        return time.perf_counter() - began

    def await_answer(self, timeout_s: float, *, partitions: int = 0) -> None:
        """Until Metadata names a broker and leaders for at least `partitions` partitions."""
        deadline = time.monotonic() + timeout_s
        last = "no answer"
        while time.monotonic() < deadline:
            if not self.alive:
                raise ServerError(f"{self.name} ended by itself:\n{self.log_tail()}")
            try:
                with Connection(self.port, timeout_s=max(1.0, timeout_s / 4)) as connection:
                    metadata = connection.metadata()
            except (OSError, WireError) as error:
                last = str(error)
            else:
                last = f"{metadata.brokers} brokers, {metadata.led} partitions with a leader"
                if metadata.brokers and metadata.led >= partitions:
                    return
            time.sleep(0.005)
        raise ServerError(f"{self.name}: not ready after {timeout_s:g} s ({last}):\n{self.log_tail()}")

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError(f"{self.name} was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, timeout_s: float = 60.0) -> None:
        """SIGTERM, and SIGKILL for what does not end in time."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        self._end(signal.SIGKILL, 30.0)

    def _end(self, number: signal.Signals, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def remove(self) -> None:
        """End the process and remove everything it wrote."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self, limit: int = 2000) -> str:
        path = self.folder / "server.log"
        return path.read_text(errors="replace")[-limit:].strip() if path.exists() else ""


class ApacheKafka(Server):
    """Apache Kafka from its own jars, with the heap and collector that its start script chooses."""

    name = "Apache Kafka"

    def _java(self, *options: str) -> list[str]:
        return [java(), *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath()]

    def _tool(self, *arguments: str) -> list[str]:
        return [*self._java("-Xmx256m"), "kafka.tools.StorageTool", *arguments]

    def _command(self) -> list[str]:
        return [*self._java(*BENCH_JVM), "kafka.Kafka", str(self.properties)]

    def version(self) -> str:
        return VERSION


class Ottla(Server):
    """Ottla from this checkout, run by the interpreter that runs the benchmark."""

    name = "Ottla"

    def _python(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "ottla.cli.main", *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def _tool(self, *arguments: str) -> list[str]:
        return self._python("storage", *arguments)

    def _command(self) -> list[str]:
        return self._python("server", "start", str(self.properties))

    def version(self) -> str:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip() or "checkout"


class Taking(Ottla):
    """Takes the bytes and drops them: what the client itself can do at most. See floor_server."""

    name = "taking the bytes"

    def format(self) -> None:
        (self.folder / "data").mkdir(parents=True, exist_ok=True)

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "bench.floor_server", str(self.port), *self._arguments()]

    def _arguments(self) -> list[str]:
        return []

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


class Writing(Taking):
    """Takes the bytes and writes them to files: what the kernel asks of any broker that does."""

    name = "writing the bytes"

    def _arguments(self) -> list[str]:
        return [str(self.folder / "data")]


KINDS: dict[str, type[Server]] = {"ottla": Ottla, "kafka": ApacheKafka, "taking": Taking, "writing": Writing}
