"""A driver of a pipeline as processes: `ottla pipeline run`, its JVM, its executors and its Python workers, each to be hit.

Processes are recognised by a variable of their environment, also when their parent is gone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.interop.ottla_server import ROOT
from tests.support.class_archives import spark_archive
from tests.support.kafka_jars import java
from tests.support.python_forks import fork_environment, python_command

FILE = Path(__file__).with_name("copy_pipeline.py")
SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MARK = "OTTLA_TEST_DRIVER"
_JAVA = """#!/bin/sh
# Spark runs no speculative copy on the host of the first attempt: each executor gets an address of its own.
case "$*" in *CoarseGrainedExecutorBackend*)
  id=0; before=
  for word in "$@"; do [ "$before" = --executor-id ] && id=$word; before=$word; done
  before=
  for word in "$@"; do
    shift; [ "$before" = --hostname ] && set -- "$@" "127.0.1.$((id % 250 + 1))" || set -- "$@" "$word"; before=$word
  done
esac
exec "{java}" "$@"
"""


def is_cluster(master: str) -> bool:
    return master.startswith("local-cluster")


def small_jvm() -> str:
    archive = spark_archive()
    shared = [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []
    return " ".join([*SMALL, *shared])


class Driver:
    """`ottla pipeline run` in a process group of its own."""

    def __init__(
        self,
        servers: str,
        folder: Path,
        variables: dict[str, str],
        master: str = "local[2]",
        conf: Sequence[str] = (),
        *,
        checkpoints: str | None = None,
        log: str = "driver.log",
    ) -> None:
        settings = [
            "spark.sql.shuffle.partitions=2",
            "spark.driver.memory=768m",
            f"spark.driver.extraJavaOptions={small_jvm()}",
            *conf,
        ]
        self._command = [
            sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(FILE), "-b", servers, "--master", master,
            "--checkpoints", checkpoints or str(folder / "checkpoints"), "--state", str(folder / "state"), "--quiet",
            "--status", str(folder / f"{log}.status.json"), "--spark-log", str(folder / f"{log}.spark"),
            "--max-offsets-per-trigger", "150",
            *[word for setting in settings for word in ("--conf", setting)],
        ]  # fmt: skip
        self.log, self.spark_log, self.status_file = (
            folder / name for name in (log, f"{log}.spark", f"{log}.status.json")
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._environment = {
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1", **variables,
            _MARK: f"{folder}/{log}", "SPARK_LAUNCHER_OPTS": " ".join(SMALL), "SPARK_LOCAL_DIRS": str(folder / "spark"),
        }  # fmt: skip
        self._forks_folder = Path(tempfile.mkdtemp(prefix="ottla-forks-"))  # a socket's path has 107 bytes at most
        self._environment |= fork_environment(self._forks_folder)
        self._environment["PYSPARK_PYTHON"] = python_command(self._forks_folder)
        if is_cluster(master):
            self._environment["JAVA_HOME"] = _java_home(folder)
        self.process: subprocess.Popen[bytes] | None = None
        self._forks: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        with self.log.open("ab") as log:
            if self._forks is None or self._forks.poll() is not None:
                self._forks = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.python_forks"],
                    env=self._environment | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.process = subprocess.Popen(
                [*self._command, *words],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, timeout: float) -> None:
        """To the end of what is there."""
        self.start("--once", "--max-offsets-per-trigger", "5000")
        try:
            assert self.process.wait(timeout) == 0, self.last_words()
        finally:
            self.kill()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def last_words(self, size: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def kill(self) -> None:
        """All of its processes, those of earlier starts too."""
        for _ in range(3):  # a process that is killed may have made a child meanwhile
            send_signal(self.processes(), signal.SIGKILL)
        for process in (self.process, self._forks):
            if process is not None:
                process.wait(30)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._forks_folder, ignore_errors=True)

    def kill_driver(self) -> None:
        """The driver and its JVM at once. Executors and their tasks end when they notice."""
        send_signal(self.processes("-m\0ottla.cli.main", "SparkSubmit"), signal.SIGKILL)
        self.process.wait(30)

    def executors(self) -> list[int]:
        return self.processes("CoarseGrainedExecutorBackend")

    def python_workers(self, *jvms: int) -> list[int]:
        """Spark's Python processes of these JVMs or of all: daemons, and the workers and planners that they forked."""
        names = {f"py{jvm}" for jvm in jvms}
        workers = []
        for pid in self.processes():
            with suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name in names or (not jvms and re.fullmatch(r"py\d+", name)):
                    workers.append(pid)
        return workers

    def jvm(self) -> list[int]:
        return self.processes("SparkSubmit")

    def processes(self, *words: str) -> list[int]:
        """Those of this driver whose command line has one of the words."""
        mark, pids = f"{_MARK}={self._environment[_MARK]}\0".encode(), []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes() + b"\0":
                    command = (entry / "cmdline").read_bytes()
                    if not words or any(word.encode() in command for word in words):
                        pids.append(int(entry.name))
        return pids

    def error(self) -> str:
        """Why the driver ended by itself, from its status file. Of a driver that runs, the file has the last error of a query."""
        with suppress(OSError, ValueError):
            status = json.loads(self.status_file.read_text())
            return str(status.get("error", "")) if status.get("state") == "failed" else ""
        return ""


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _java_home(folder: Path) -> str:
    home = folder / "java"
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True)
        program.write_text(_JAVA.replace("{java}", str(Path(java()).resolve())))
        program.chmod(stat.S_IRWXU)
        for name in ("lib", "conf", "release"):
            source = Path(java()).resolve().parents[1] / name
            if source.exists():
                (home / name).symlink_to(source)
    return str(home)


def remove_work_folders(names: Iterable[str]) -> None:
    """Those that executors of local-cluster leave in Spark's own folder, by the ids of their applications."""
    import pyspark

    for name in names:
        shutil.rmtree(Path(pyspark.__file__).parent / "work" / name, ignore_errors=True)
