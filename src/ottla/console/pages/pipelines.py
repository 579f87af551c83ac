"""Pipelines: those that `ottla pipeline serve` tells of, with their state, rates, errors and graph."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.errors import ConsoleError
from ottla.console.render import path_part
from ottla.console.site import Site, site_of
from ottla.console.web import back, form, page_response

_TIMEOUT_S = 5.0
_MAX_BYTES = 8 * 1024 * 1024
_ACTIONS = ("start", "stop")


def call(site: Site, method: str, path: str) -> Any:
    base = site.settings.pipelines_url.rstrip("/")
    if not base:
        raise ConsoleError(
            "The console was not told where pipelines are: run `ottla pipeline serve` and start it with --pipelines URL.",
            status=404,
        )
    if not base.startswith(("http://", "https://")):
        raise ConsoleError("the pipelines' address must begin with http:// or https://")
    request = HttpRequest(base + path, method=method)  # noqa: S310 - http(s) only, checked above
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - as above
            return json.loads(answer.read(_MAX_BYTES) or b"null")
    except HTTPError as error:
        raise ConsoleError(f"pipelines answered {error.code}: {error.read(2000).decode(errors='replace')}") from error
    except (URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise ConsoleError(f"the pipelines at {base} do not answer: {error}", status=503) from error


async def show(request: Request) -> Response:
    site = site_of(request)
    pipelines: list[dict[str, Any]] | None = None
    reason = ""
    try:
        pipelines = await site.gateway.in_thread(lambda: call(site, "GET", "/pipelines"))
    except ConsoleError as error:
        reason = error.message
    return page_response(request, "pipelines.html", "pipelines", pipelines=pipelines, reason=reason)


async def control(request: Request) -> Response:
    await form(request)
    name, action = request.path_params["pipeline"], request.path_params["action"]
    if action not in _ACTIONS:
        raise ConsoleError(f"a pipeline cannot {action}", status=404)
    site = site_of(request)
    await site.gateway.in_thread(lambda: call(site, "POST", f"/pipelines/{path_part(name)}/{action}"))
    return back("/pipelines", f"{name}: {action} asked for.")


ROUTES = [Route("/pipelines", show), Route("/pipelines/{pipeline}/{action}", control, methods=["POST"])]
