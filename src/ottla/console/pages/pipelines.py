"""Pipelines and connectors: those that `ottla pipeline serve` reports, with their state, rates, errors and graph."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request as HttpRequest

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.drawing import Drawing, DrawingNode, draw, layers
from ottla.console.errors import ConsoleError
from ottla.console.render import path_part
from ottla.console.site import Site, site_of
from ottla.console.upstream import upstream
from ottla.console.web import back, form, page_response
from ottla.env.http_request import open_request

_TIMEOUT_S = 5.0
_MAX_BYTES = 8 * 1024 * 1024
_ACTIONS = ("start", "stop")


def call(site: Site, method: str, path: str) -> Any:
    if not site.settings.pipelines_url:
        raise ConsoleError(
            "The console has no address of pipelines: run `ottla pipeline serve` and start the console with --pipelines URL.",
            status=404,
        )
    base, headers = upstream(site.settings.pipelines_url, "the pipelines")
    request = HttpRequest(base + path, method=method, headers=headers)  # noqa: S310 - http(s) only, checked by upstream
    try:
        with open_request(request, _TIMEOUT_S) as answer:
            return json.loads(answer.read(_MAX_BYTES) or b"null")
    except HTTPError as error:
        raise ConsoleError(f"pipelines answered {error.code}: {error.read(2000).decode(errors='replace')}") from error
    except (URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise ConsoleError(f"the pipelines at {base} do not answer: {error}", status=503) from error


def running(site: Site) -> list[dict[str, Any]]:
    pipelines: list[dict[str, Any]] = call(site, "GET", "/pipelines") or []
    return pipelines


def pipeline_drawing(graph: dict[str, Any]) -> Drawing:
    """Left to right: each after everything that leads to it."""
    edges = [(str(edge["from"]), str(edge["to"])) for edge in graph["edges"]]
    nodes = {str(node["id"]): node for node in graph["nodes"]}
    depth = layers(nodes, edges)
    columns: list[list[DrawingNode]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for name, node in nodes.items():
        kind, label = str(node["kind"]), str(node["label"])
        columns[depth[name]].append(DrawingNode(name, label, kind, label if kind == "topic" else ""))
    return draw(columns, [(depth[source], source, depth[target], target) for source, target in edges])


async def show(request: Request) -> Response:
    site = site_of(request)
    pipelines: list[dict[str, Any]] | None = None
    reason = ""
    try:
        pipelines = await site.gateway.in_thread(lambda: running(site))
    except ConsoleError as error:
        reason = error.message
    return page_response(request, "pipelines.html", "pipelines", pipelines=pipelines, reason=reason)


async def show_pipeline(request: Request) -> Response:
    site, name = site_of(request), request.path_params["pipeline"]
    where = f"/pipelines/{path_part(name)}"
    if name not in {pipeline.get("name") for pipeline in await site.gateway.in_thread(lambda: running(site))}:
        raise ConsoleError(f"There is no pipeline or connector {name}.", status=404)
    pipeline = await site.gateway.in_thread(lambda: call(site, "GET", where))
    drawing, reason = None, ""
    try:
        drawing = pipeline_drawing(await site.gateway.in_thread(lambda: call(site, "GET", f"{where}/graph.json")))
    except ConsoleError as error:  # its file may be gone; the rest is shown all the same
        reason = error.message
    return page_response(request, "pipeline.html", "pipelines", pipeline=pipeline, drawing=drawing, reason=reason)


async def control(request: Request) -> Response:
    await form(request)
    name, action = request.path_params["pipeline"], request.path_params["action"]
    if action not in _ACTIONS:
        raise ConsoleError(f"a pipeline cannot {action}", status=404)
    site = site_of(request)
    await site.gateway.in_thread(lambda: call(site, "POST", f"/pipelines/{path_part(name)}/{action}"))
    return back("/pipelines", f"{name}: {action} asked for.")


ROUTES = [
    Route("/pipelines", show),
    Route("/pipelines/{pipeline}", show_pipeline),
    Route("/pipelines/{pipeline}/{action}", control, methods=["POST"]),
]
