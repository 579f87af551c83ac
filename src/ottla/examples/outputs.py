"""What an example wrote, read back without Spark: SQL over its topics and Delta tables, and rows of its views over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

_START_S = 30.0
_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    servers: str
    folder: Path
    """Of the Delta tables."""
    address: str = ""
    """Of the server of views."""

    def sql(self, query: str, *tables: str) -> list[tuple[Any, ...]]:
        """The rows of a query over topics and Delta tables; none while a table is missing."""
        from ottla.tables.query import run_sql

        folders = {name: self.folder / name for name in tables}
        if not all((folder / "_delta_log").is_dir() for folder in folders.values()):
            return []
        more = {name: _delta(folder) for name, folder in folders.items()}
        answer, _ = run_sql({"bootstrap.servers": self.servers}, query, more=more)
        return [tuple(row.values()) for row in answer.to_pylist()]

    def view_url(self, pipeline: str, view: str, **key: str) -> str:
        """Of a row of a view. A key of several columns is a JSON object."""
        text = json.dumps(key) if len(key) > 1 else next(iter(key.values()))
        return f"{self.address}/pipelines/{quote(pipeline)}/views/{quote(view)}/rows?{urlencode({'key': text})}"

    def view_row(self, pipeline: str, view: str, **key: str) -> dict[str, Any]:
        with urlopen(self.view_url(pipeline, view, **key), timeout=_ANSWER_S) as answer:  # noqa: S310 - our own server
            row: dict[str, Any] = json.load(answer)["row"]
        return row


def _delta(folder: Path) -> Any:
    """A data set, of which a query reads only the columns that it names."""
    from deltalake import DeltaTable

    return DeltaTable(str(folder)).to_pyarrow_dataset()


def _reads(app: Starlette) -> ASGIApp:
    """The application without its requests that start and stop pipelines: this server has no login."""
    from starlette.responses import PlainTextResponse

    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        is_change = scope["type"] == "http" and scope["method"] not in ("GET", "HEAD")
        await (PlainTextResponse("HTTP 405: this server only reads\n", 405) if is_change else app)(scope, receive, send)

    return reads


@contextmanager
def served_views(state: Path, files: dict[str, Path]) -> Iterator[str]:
    """`ottla pipeline serve` on a thread of this process, for reads alone: the address. `files` is by pipeline."""
    import socket
    import threading

    import uvicorn

    from ottla.pipelines.serve import REALM, app, role_for
    from ottla.pipelines.supervisor import paths, state_directory, write_json
    from ottla.security.web import WebAccess
    from ottla.security.web_hosts import WebHosts

    folder = state_directory(str(state))
    for name, file in files.items():
        write_json(paths(folder, name)[0], {"name": name, "words": [str(file)], "cwd": str(state)})
    guarded = WebAccess(realm=REALM).protect(_reads(app(folder)), role_for=role_for, hosts=WebHosts(("127.0.0.1",)))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(guarded, log_level="warning", server_header=False))
    thread = threading.Thread(target=server.run, args=([listener],), name="views", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_START_S)
        listener.close()
        if thread.is_alive():
            raise UserError(f"the server of views did not stop in {_START_S:.0f} s")
