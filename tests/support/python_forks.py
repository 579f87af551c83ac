"""Spark's Python processes as forks of one that has imported everything: 0.03 s of CPU for a start instead of 0.5 to 2.

Spark gives a Python process ten seconds to connect back, and a busy machine does not import PySpark, pyarrow and a table
library in that time. `python_command` makes the program for PYSPARK_PYTHON: it passes its words, environment and open files
to the server, which forks. Workers are processes of their own in every other way: Spark ends them, and tests kill them.

The name of a forked process (`/proc/PID/comm`) is `py` and the pid of the JVM that asked for it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SOCKET = "OTTLA_TEST_FORKS"
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys, time
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
server = socket.socket(socket.AF_UNIX)
while server.connect_ex(os.environ[{name!r}]):  # it still imports
    time.sleep(0.05)
words = dict(words=sys.argv[2:], environment=dict(os.environ), folder=os.getcwd(), jvm=os.getppid())
data = json.dumps(words).encode()
socket.send_fds(server, [len(data).to_bytes(8, "big")], [0, 1, 2])
server.sendall(data)
pid = int.from_bytes(server.recv(8), "big")
for descriptor in 0, 1, 2:
    os.close(descriptor)
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
status = server.recv(1)
os._exit(status[0] if status else 1)
"""
_IMPORTED = (
    "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.fs", "pyarrow.parquet",
    "pyspark.daemon", "pyspark.worker", "pyspark.sql.pandas.serializers", "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.stateful_processor_api_client", "pyspark.sql.streaming.stateful_processor_util",
    "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source", "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.lookup_data_sources",
    "confluent_kafka", "deltalake", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "adbc_driver_postgresql.dbapi",
    "ottla.pipelines.datasource", "ottla.pipelines.keyed_state", "ottla.pipelines.joins", "ottla.pipelines.outputs.sources",
    "ottla.pipelines.outputs.delta", "ottla.pipelines.outputs.iceberg", "ottla.pipelines.outputs.files",
    "ottla.pipelines.outputs.sql", "ottla.connect.exactly_once", "ottla.pipelines.codecs",
)  # fmt: skip


def python_command(folder: Path) -> str:
    """The program for PYSPARK_PYTHON."""
    program = folder / "python-forks"
    program.write_text(_PROGRAM.format(python=sys.executable, name=_SOCKET))
    program.chmod(0o700)
    return str(program)


def fork_environment(folder: Path) -> dict[str, str]:
    """Of the server and of the processes that ask it."""
    return {_SOCKET: str(folder / "forks.socket")}


def serve(modules: Iterable[str] = _IMPORTED) -> None:
    """Forks for each connection, until the process is killed."""
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    path = Path(os.environ[_SOCKET])
    path.unlink(missing_ok=True)
    waiting: dict[int, socket.socket] = {}

    def on_child(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                connection = waiting.pop(pid, None)
                if connection is not None:
                    with contextlib.suppress(OSError):
                        connection.send(bytes([abs(os.waitstatus_to_exitcode(status)) % 256]))
                    connection.close()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(64)
        signal.signal(signal.SIGCHLD, on_child)
        while True:
            connection, _ = server.accept()
            with contextlib.suppress(OSError, ValueError):
                _fork(connection, waiting)


def _fork(connection: socket.socket, waiting: dict[int, socket.socket]) -> None:
    size, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    data = b""
    while len(data) < int.from_bytes(size, "big"):
        data += connection.recv(1 << 16)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        _become(json.loads(data), descriptors)
    waiting[pid] = connection
    connection.send(pid.to_bytes(8, "big"))
    for descriptor in descriptors:
        os.close(descriptor)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """The process that was asked for: `python -m MODULE WORDS`."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 4096)
        Path("/proc/self/comm").write_text(f"py{request['jvm']}")
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(str(request["folder"]))
        for place in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
            if place and not place.endswith(("pyspark.zip", "-src.zip")) and place not in sys.path:
                sys.path.insert(0, place)
        module, *words = request["words"]
        sys.argv = [str(module), *words]
        warnings.simplefilter("ignore", RuntimeWarning)
        runpy.run_module(str(module), run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - the fork must never go on as a server
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
