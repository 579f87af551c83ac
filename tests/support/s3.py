"""A real S3 server on a free loopback port: versitygw over a folder, built once by `go install` and kept in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock
from tests.support.ports import free_port

VERSION = "v1.8.0"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_RETRY_AFTER_S = 1800
KEYS = {"AWS_ACCESS_KEY_ID": "ottla-tests", "AWS_SECRET_ACCESS_KEY": "ottla-tests-secret", "AWS_REGION": "us-east-1"}
"""What clients need in their environment."""


def versitygw(timeout_s: float = 600) -> Path:
    """The server's binary; Unavailable says why there is none."""
    folder = cache_dir().with_name(f"ottla-versitygw-{VERSION}")
    binary, failed = folder / "versitygw", folder / "unreachable"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no versitygw in the cache and no go on PATH to build it")
    with file_lock(folder.with_name(folder.name + ".lock")):
        if binary.exists():
            return binary
        if failed.exists() and time.time() - failed.stat().st_mtime < _RETRY_AFTER_S:
            raise Unavailable(failed.read_text())
        folder.mkdir(exist_ok=True)
        environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw"}
        try:
            done = subprocess.run(
                [go, "install", f"{_MODULE}@{VERSION}"],
                env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
            )  # fmt: skip
            problem = done.stderr.strip().splitlines()[-1][:200] if done.returncode else ""
        except subprocess.TimeoutExpired:
            problem = f"go install took longer than {timeout_s:.0f} s"
        if problem or not binary.exists():
            failed.write_text(f"no versitygw: {problem or 'go install made no binary'}")
            raise Unavailable(failed.read_text())
    return binary


@dataclass(frozen=True)
class S3:
    endpoint: str
    root: Path

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
    binary, port = versitygw(), free_port()
    root = folder / "buckets"
    root.mkdir(parents=True)
    environment = {
        **os.environ,
        "ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"],
        "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    with (folder / "s3.log").open("wb") as log:
        process = subprocess.Popen(
            [str(binary), "--port", f"127.0.0.1:{port}", "posix", str(root)],
            env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _await(endpoint, process, folder / "s3.log")
        yield S3(endpoint, root)
    finally:
        process.kill()
        process.wait(30)


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
