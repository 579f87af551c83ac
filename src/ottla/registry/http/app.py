"""The ASGI application: a request is read with a limit, routed, carried out here or by the writer, and answered once.

`scope["user"]` is the user that `WebAccess.protect` admitted. This module checks the role that the route needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from ottla.client.audit.events import FACTS
from ottla.env.logging import get_logger
from ottla.registry.errors import RegistryError
from ottla.registry.http.answers import CONTENT_TYPES, JSON_V1, Request, RestResponse, failure
from ottla.registry.http.bodies import Bodies, Receive
from ottla.registry.http.forwarding import FORWARDED, OFFSET, Elected, forward
from ottla.registry.http.routes import RestRoute, find_route
from ottla.registry.http.subject_rights import check_rights
from ottla.registry.service import Registry
from ottla.security.web import ANYBODY, client_of
from ottla.security.web_hosts import headers_of
from ottla.security.web_users import WebUser

log = get_logger(__name__)
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class RegistryApp:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._bodies = Bodies(registry.settings.schema_max_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = headers_of(scope)
        try:
            response = await self._answer(scope, headers, receive)
        except RegistryError as error:
            response = failure(error)
        except Exception as error:  # the supervisor of requests: one that fails must not end the server
            log.error("request.failed", path=scope["path"], exc_info=error)
            response = failure(RegistryError(50001, f"Internal error: {type(error).__name__}"))
        await _send(response, headers, scope["method"], send)

    async def _answer(self, scope: Scope, headers: dict[str, str], receive: Receive) -> RestResponse:
        if scope["method"] not in {"POST", "PUT", "DELETE"}:
            return await self._answer_to(scope, headers, b"")
        async with self._bodies.read(receive) as body:
            return await self._answer_to(scope, headers, body)

    async def _answer_to(self, scope: Scope, headers: dict[str, str], body: bytes) -> RestResponse:
        method: str = scope["method"]
        if body and method in {"POST", "PUT"}:
            _check_content_type(headers.get("content-type"))
        request = _request(scope, headers, body)
        route = find_route(request)
        if route.role != "read":
            context = [] if request.context is None else [f":{request.context}:"]
            scope[FACTS] = {"action": route.handler.__name__, "resources": [*context, *request.parts]}
        user: WebUser = scope["user"]
        if not user.may(route.role):
            raise RegistryError(403, "Forbidden")
        request.client = client_of(scope) if user is ANYBODY else user.name
        check_rights(request, user, route.role)
        return await self._carry_out(route, request)

    async def _carry_out(self, route: RestRoute, request: Request) -> RestResponse:
        registry = self._registry
        if not route.writes:
            return await route.handler(registry, request)
        if not registry.is_writer:
            if FORWARDED in request.headers:
                return RestResponse(failure(RegistryError(50004, "Leader not known")).body, 503)
            try:
                return await forward(registry, request)
            except Elected:
                log.debug("request.kept", path=request.target)
        response = await route.handler(registry, request)
        response.headers[OFFSET] = str(registry.log.position)
        return response


def _request(scope: Scope, headers: dict[str, str], body: bytes) -> Request:
    raw = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
    query = scope["query_string"].decode("latin-1")
    path = tuple(unquote(part) for part in raw.strip("/").split("/")) if raw.strip("/") else ()
    target = f"{raw}?{query}" if query else raw
    values = dict(parse_qsl(query, keep_blank_values=True))
    return Request(scope["method"], path, values, headers, body, target)


def _check_content_type(header: str | None) -> None:
    kind = (header or "application/octet-stream").partition(";")[0].strip().lower()
    if kind not in CONTENT_TYPES:
        raise RegistryError(415, f"HTTP 415 Unsupported Media Type: {kind}, expected {JSON_V1}")


async def _send(response: RestResponse, headers: dict[str, str], method: str, send: Send) -> None:
    kind = response.content_type
    accepted = headers.get("accept", "")
    if kind == JSON_V1 and JSON_V1 not in accepted:
        kind = next((content_type for content_type in CONTENT_TYPES[1:3] if content_type in accepted), kind)
    lines = [(b"content-type", kind.encode()), (b"content-length", str(len(response.body)).encode())]
    lines += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": lines})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else response.body})
