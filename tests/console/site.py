"""A console of its own for a test, served by uvicorn on a free port, in this process."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn

from ottla.console.app import make_app
from ottla.console.settings import ConsoleSettings
from ottla.security.web import hash_password


def users_file(folder: Path, *roles: str) -> str:
    """A user for each role, called like it, with the password geheim-1."""
    file = folder / "users"
    file.write_text("".join(f"{role}:{role}:{hash_password('geheim-1')}\n" for role in roles))
    return str(file)


PATIENT = {"request.timeout.ms": "30000", "default.api.timeout.ms": "30000"}
"""A page gives up after 8 s unless told: a busy machine may be slower."""


class ServedConsole:
    def __init__(self, **settings: Any) -> None:
        given = {"sample_interval_s": 0.5, "client": PATIENT, **settings}
        self.app = make_app(ConsoleSettings(**given))
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=0, log_level="warning", access_log=False, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self.http = httpx.Client(timeout=60, follow_redirects=True)
        self.pipelines: Any = None
        """Those of the scene, where there are any."""

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < deadline, "the console did not start"
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        self.http.base_url = httpx.URL(self.url)
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive(), "the console did not stop"

    @property
    def site(self) -> Any:
        return self.app.state.site

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.http.get(path, params=params or None)

    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.get("/new-topic").text)
        assert found is not None
        return found[1]

    def post(self, path: str, /, **fields: str) -> httpx.Response:
        return self.http.post(path, data={"csrf": self.csrf(), **fields})

    def until(self, path: str, text: str, seconds: float = 60, **params: Any) -> str:
        """The page once it has `text`."""
        deadline = time.monotonic() + seconds
        while True:
            page = self.get(path, **params).text
            if text in page:
                return page
            assert time.monotonic() < deadline, f"{path} never said {text!r}:\n{page[-3000:]}"
            time.sleep(0.1)
