"""Real Spark servers on loopback: a standalone master with two workers, and a Spark Connect server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pyspark

from ottla.pipelines.session import use_java
from tests.support.ports import free_port
from tests.support.whole_answers import whole

BIN = Path(pyspark.__file__).parent / "bin"
_START_S = 240
_QUICK = """#!/bin/sh
# Spark's zip of itself has no bytecode: without it a worker starts in a third of the time, and Spark waits ten seconds for one.
kept=
IFS=:
for path in $PYTHONPATH; do case "$path" in */pyspark.zip) ;; *) kept="${kept:+$kept:}$path" ;; esac; done
unset IFS
PYTHONPATH="$kept" exec "$(dirname "$0")/python" -P "$@"
"""


def bare_python(folder: Path, **modules: str) -> Path:
    """An environment with the packages of this one and without an installed Ottla; `modules` are more files in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    # A folder of a .pth file is searched, but the .pth files in it (that of an editable Ottla) are not read.
    (packages / "packages.pth").write_text(f"{Path(pyspark.__file__).parent.parent}\n")
    for name, text in modules.items():
        (packages / f"{name}.py").write_text(text)
    (folder / "bin" / "python3").unlink()
    (folder / "bin" / "python3").write_text(_QUICK)
    (folder / "bin" / "python3").chmod(0o755)
    return folder / "bin" / "python3"


def packed(environment: Path, archive: Path) -> Path:
    """As venv-pack makes one: bin/ is at the top of the archive."""
    with tarfile.open(archive, "w:gz") as file:
        file.add(environment, arcname=".")
    return archive


def _environment(python: str, memory: str) -> dict[str, str]:
    """Without anything that would bring an Ottla along; `python3` is this Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "OTTLA_"))}
    kept.pop("PYTHONPATH", None)
    return {
        **kept,
        "PATH": f"{Path(python).parent}:{kept['PATH']}",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def standalone_cluster(folder: Path, python: str = sys.executable) -> Iterator[str]:
    """The address of a master with two workers of one core each, whose folders are `folder`/worker0 and worker1."""
    use_java()
    folder.mkdir(parents=True, exist_ok=True)
    port, web = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    roles = [
        ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)],
        *[
            ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "900m", "--webui-port", "0",
             "--work-dir", str(folder / f"worker{n}"), master]
            for n in range(2)
        ],
    ]  # fmt: skip
    log = folder / "cluster.log"
    started = [_started([str(BIN / "spark-class"), *role], _environment(python, "256m"), folder, log) for role in roles]
    try:
        _await_workers(f"http://127.0.0.1:{web}/json/", log)
        yield master
    finally:
        _end(started)


@contextmanager
def connect_server(folder: Path, python: str = sys.executable, words: Sequence[str] = ()) -> Iterator[str]:
    """The address of a Spark Connect server; `words` are more words of spark-submit."""
    use_java()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [
        str(BIN / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", "spark.ui.enabled=false", "--conf", f"spark.sql.warehouse.dir={folder}/warehouse",
        *words, "spark-internal",
    ]  # fmt: skip
    log = folder / "connect.log"
    server = _started(command, _environment(python, "900m"), folder, log)
    try:
        _await_port(port, server, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        _end([server])


def _started(command: Sequence[str], environment: dict[str, str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=file, stderr=subprocess.STDOUT)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait(30)


def _await_workers(address: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                if json.loads(whole(answer))["aliveworkers"] == 2:
                    return
        except (OSError, HTTPException):
            pass
        time.sleep(0.5)
    raise RuntimeError(f"no two workers: {log.read_text(errors='replace')[-2000:]}")


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(f"no Spark Connect server: {log.read_text(errors='replace')[-2000:]}")
