"""`ottla pipeline serve`: what runs here, over HTTP, for the console: states, metrics, graphs, start and stop, views.

Readers see, writers (operators) start and stop; `ottla.security.web` has users, tokens, TLS and what a browser may send.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.model.user_error import UserError
from ottla.pipelines import supervisor

if TYPE_CHECKING:
    from starlette.requests import Request

REALM = "ottla-pipelines"
Handler = Callable[["Request"], Coroutine[Any, Any, Response]]


def app(state: str) -> Starlette:
    """The application; pipelines are those of the state directory."""

    async def everything(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(supervisor.every, state))

    async def metrics(_: Request) -> Response:
        from ottla.pipelines.metrics import CONTENT_TYPE, exposition

        return Response(exposition(await run_in_threadpool(supervisor.every, state)), media_type=CONTENT_TYPE)

    async def one_pipeline(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(supervisor.current, state, request.path_params["name"]))

    async def drawn(request: Request) -> Response:
        from ottla.pipelines.graph import graph, svg

        status = await run_in_threadpool(supervisor.current, state, request.path_params["name"])
        if status.get("kind") == "connector":
            return JSONResponse(_connector_graph(status))
        pipeline = await run_in_threadpool(_loaded, state, request.path_params["name"])
        if request.path_params["kind"] == "svg":
            return Response(svg(pipeline), media_type="image/svg+xml")
        return JSONResponse(graph(pipeline))

    async def view(request: Request) -> Response:
        from ottla.pipelines.view_reads import PAGE_ROWS, page

        path, keys = await run_in_threadpool(_view, state, request)
        limit = _whole_number("limit", request.query_params.get("limit", str(PAGE_ROWS)))
        answer = await run_in_threadpool(page, path, keys, limit=limit, after=request.query_params.get("after"))
        if answer["next"]:
            answer["next"] = f"{request.url.path}?{urlencode({'limit': limit, 'after': answer['next']})}"
        return _json(answer)

    async def view_row(request: Request) -> Response:
        from ottla.pipelines.view_reads import RowMissing, row

        path, keys = await run_in_threadpool(_view, state, request)
        try:
            return _json(await run_in_threadpool(row, path, keys, _key(request)))
        except RowMissing as missing:
            return _json({"message": str(missing), "true_at": missing.true_at}, status_code=404)

    async def control(request: Request) -> Response:
        name, action = request.path_params["name"], request.path_params["action"]
        if action == "start":
            await run_in_threadpool(supervisor.restart, state, name)
        elif action == "stop":
            await run_in_threadpool(supervisor.stop, state, name)
        else:
            return JSONResponse({"message": f"a pipeline cannot {action}"}, status_code=404)
        return JSONResponse(await run_in_threadpool(supervisor.current, state, name))

    return Starlette(
        routes=[
            Route("/healthz", _healthy),
            Route("/metrics", _answered(metrics)),
            Route("/pipelines", _answered(everything)),
            Route("/pipelines/{name}", _answered(one_pipeline)),
            Route("/pipelines/{name}/graph.{kind:str}", _answered(drawn)),
            Route("/pipelines/{name}/views/{view}", _answered(view)),
            Route("/pipelines/{name}/views/{view}/rows", _answered(view_row)),
            Route("/pipelines/{name}/views/{view}/rows/{key:any_text}", _answered(view_row)),
            Route("/pipelines/{name}/{action}", _answered(control), methods=["POST"]),
        ]
    )


def role_for(method: str, path: str) -> str | None:
    """GET and HEAD need the role read, on every path; other methods need write. A health check needs no login."""
    if path == "/healthz" and method in ("GET", "HEAD"):
        return None
    return "read" if method in ("GET", "HEAD") else "write"


async def _healthy(_: Request) -> Response:
    return Response("ok\n", media_type="text/plain")


def _answered(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except (UserError, ValueError) as problem:
            return JSONResponse({"message": str(problem)}, status_code=400)

    return answer


class _AnyText(Convertor[str]):
    """Starlette's own `path` ends at a line feed."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any_text", _AnyText())


def _key(request: Request) -> str:
    """From the query or the path: HTTP clients rewrite a path with the parts `.` and `..`."""
    key = request.query_params.get("key", request.path_params.get("key"))
    if key is None:
        raise UserError("which row? Give its key: rows/KEY or rows?key=KEY")
    return str(key)


def _whole_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"`{name}` is a whole number, not {text[:20]!r}") from None


def _connector_graph(status: dict[str, Any]) -> dict[str, Any]:
    """What it reads, itself, what it writes; as `graph` draws a pipeline."""
    mine = f"step:{status['name']}"
    inputs, outputs = list(status.get("inputs") or []), list(status.get("outputs") or [])
    nodes = []
    for name in [*inputs, mine, *outputs]:
        kind, _, label = name.partition(":")
        nodes.append({"id": name, "kind": kind, "label": label})
    edges = [{"from": name, "to": mine} for name in inputs] + [{"from": mine, "to": name} for name in outputs]
    return {"pipeline": status["name"], "nodes": nodes, "edges": edges, "inputs": inputs, "outputs": outputs}


def _loaded(state: str, name: str) -> Any:
    from ottla.pipelines.pipeline import load_pipelines

    definition = supervisor.read_json(supervisor.paths(state, name)[0])
    if definition is None:
        raise UserError(f"pipeline {name} was never started here")
    return next(
        (pipeline for pipeline in load_pipelines(str(definition["words"][0])) if pipeline.name == name), None
    ) or _missing(name)


def _missing(name: str) -> Any:
    raise UserError(f"the file has no pipeline {name} any more")


def _json(content: dict[str, Any], status_code: int = 200) -> Response:
    """Values that JSON does not have, such as times, are text."""
    return Response(json.dumps(content, default=str), status_code, media_type="application/json")


def _view(state: str, request: Request) -> tuple[str, list[str]]:
    """The folder and the key columns of the view's table."""
    from ottla.pipelines.ports import View

    pipeline, name = _loaded(state, request.path_params["name"]), request.path_params["view"]
    for step in pipeline.steps:
        for port in step.writes.values():
            if isinstance(port, View) and port.topic.name == name:
                begun_in = (supervisor.read_json(supervisor.paths(state, pipeline.name)[0]) or {}).get("cwd") or ""
                path = port.delta.path
                return path if "://" in path else os.path.join(begun_in, path), list(port.delta.keys)
    raise UserError(f"pipeline {pipeline.name} has no view {name}")
