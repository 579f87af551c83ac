"""Registries for tests: in a thread of this process, or as processes of their own."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import Future
from typing import Any, Self
from urllib.parse import quote

from ottla.registry.server import RegistryServer
from ottla.registry.settings import RegistrySettings
from tests.support.whole_answers import whole

START_TIMEOUT_S = 60


class RegistryThread:
    def __init__(self, bootstrap_servers: str, at: int = 0, **settings: Any) -> None:
        settings.setdefault("alone", True)
        self.settings = RegistrySettings(bootstrap_servers=bootstrap_servers, port=at, **settings)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started: Future[RegistryServer] = Future()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.server = self._started.result(START_TIMEOUT_S)
        self.url = self.server.url
        return self

    def __exit__(self, *_: object) -> None:
        if self.url:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(START_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = RegistryServer(self.settings)
            await server.start()
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits in __enter__
            self._started.set_exception(error)
            return
        self._started.set_result(server)
        await self._stopping.wait()
        await server.stop()


class RegistryProcess:
    """`ottla registry` as a user starts it."""

    def __init__(self, bootstrap_servers: str, port: int = 0, *arguments: str) -> None:
        self._command = [
            sys.executable, "-m", "ottla.cli.main", "registry", "--bootstrap-servers", bootstrap_servers,
            "--listen", f"127.0.0.1:{port}", *arguments,
        ]  # fmt: skip
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http" in line, f"the registry did not start: {line!r}"
        self.url = next(word for word in line.split() if word.startswith("http"))
        return self

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(30)
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return code


def call(
    url: str, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, timeout: float = 30
) -> tuple[int, Any]:
    """Status and decoded answer; OSError when there is no whole answer, so that nobody knows what was done."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, method=method)
    request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    try:
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, _decoded(whole(response))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(whole(error))
    except http.client.HTTPException as error:
        raise ConnectionError(f"the answer was cut off: {error!r}") from error


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


def register(url: str, subject: str, schema: Any, schema_type: str = "AVRO", **more: Any) -> tuple[int, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = {"schema": text, "schemaType": schema_type, **more}
    return call(url, "POST", f"/subjects/{quote(subject, safe='')}/versions", body)


def until(condition: Any, timeout_s: float = 30, what: str = "it") -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {timeout_s} s")
