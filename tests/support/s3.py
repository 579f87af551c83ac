"""A real S3 server on a free loopback port: versitygw over a folder, built once by `go install` and kept in the cache."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.go_binaries import go_binary
from tests.support.ports import free_port

VERSION = "v1.8.0"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
KEYS = {"AWS_ACCESS_KEY_ID": "ottla-tests", "AWS_SECRET_ACCESS_KEY": "ottla-tests-secret", "AWS_REGION": "us-east-1"}
"""What clients need in their environment."""


def versitygw(timeout_s: float = 600) -> Path:
    """The server's binary; Unavailable says why there is none."""
    return go_binary("versitygw", VERSION, lambda go, folder: _install(go, folder, timeout_s))


def _install(go: str, folder: Path, timeout_s: float) -> str:
    """The problem, if there is one."""
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw"}
    try:
        done = subprocess.run(
            [go, "install", f"{_MODULE}@{VERSION}"],
            env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"go install took longer than {timeout_s:.0f} s"
    return done.stderr.strip().splitlines()[-1][:200] if done.returncode else ""


class S3:
    """A gateway that survives `kill` and `start`, with its buckets."""

    def __init__(self, folder: Path) -> None:
        self._binary, self._port = versitygw(), free_port()
        self.root, self._log = folder / "buckets", folder / "s3.log"
        self.root.mkdir(parents=True)
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {
            **os.environ,
            "ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"],
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binary), "--port", f"127.0.0.1:{self._port}", "posix", str(self.root)],
                env=environment, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        _await(self.endpoint, self._process, self._log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def uri(self, path: str) -> str:
        """As the Parquet sink takes it."""
        return f"s3://{path}?endpoint={self.endpoint}"

    def bucket(self, name: str) -> str:
        """A folder of the root is a bucket of the server's owner."""
        (self.root / name).mkdir(exist_ok=True)
        return name


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """Runs until the block ends; `KEYS` must be in the environment of those who use it."""
    server = S3(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _await(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(endpoint, timeout=5)
        except urllib.error.HTTPError:
            return  # it answers, and wants to know who asks
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"versitygw did not start: {log.read_text()[-500:]}")


if __name__ == "__main__":
    versitygw()
