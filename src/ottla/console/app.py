"""The console as a Starlette application: routes, and the middleware that every request passes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ottla.client.audit.events import FACTS
from ottla.client.audit.trail import AuditTrail
from ottla.console.access import AccessControl
from ottla.console.cluster.acting import ActingUsers
from ottla.console.cluster.gateway import Gateway
from ottla.console.cluster.sampler import Sampler
from ottla.console.errors import ConsoleError
from ottla.console.messages.search import Searches
from ottla.console.pages import (
    access,
    brokers,
    groups,
    lineage,
    login,
    messages,
    messages_live,
    metrics,
    overview,
    pipelines,
    quotas,
    schemas,
    settings,
    sql,
    topic,
    topics,
    transactions,
)
from ottla.console.registry_client import ConsoleRegistry
from ottla.console.settings import ConsoleSettings
from ottla.console.site import Site, site_of
from ottla.console.web import HEADERS, OPEN_PATHS, PARTIAL_PAGES, check_size, error_response

_READ_RECORDS = {messages.__name__, messages_live.__name__, sql.__name__}
_STATIC = Path(__file__).parent / "static"
_MAX_AFTER = 1_000
_PAGES = (
    overview, topics, topic, messages, messages_live, groups, schemas, pipelines, sql,
    brokers, transactions, access, quotas, settings, lineage, login, metrics,
)  # fmt: skip


def make_app(console_settings: ConsoleSettings) -> Starlette:
    gateway = Gateway(console_settings.bootstrap_servers, console_settings.client)
    access = AccessControl(
        console_settings.web_access(), read_only=console_settings.read_only, hosts=console_settings.allowed_hosts
    )
    acting_users = _acting_users(gateway, access, console_settings)
    sampler = Sampler(gateway, console_settings.sample_interval_s)
    audit = AuditTrail.open("console", console_settings.audit, gateway.librdkafka)
    site = Site(
        settings=console_settings,
        gateway=gateway,
        sampler=sampler,
        registry=ConsoleRegistry(console_settings.registry_url),
        searches=Searches(),
        access=access,
        acting_users=acting_users,
    )

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        sampler.start()
        yield
        await sampler.stop()
        site.searches.close()
        access.provider_calls.close()
        if acting_users is not None:
            acting_users.close()
        gateway.close()
        await asyncio.to_thread(audit.close)

    routes = [route for page in _PAGES for route in page.ROUTES]
    app = Starlette(
        routes=[
            *routes,
            Route("/healthz", _healthy),
            Route("/readyz", _ready),
            Mount("/static", StaticFiles(directory=_STATIC), name="static"),
        ],
        # The audit is around everything else, so that refusals are recorded too.
        middleware=[Middleware(audit.around), Middleware(BaseHTTPMiddleware, dispatch=_check_request)],
        exception_handlers={ConsoleError: _error_page, 404: _not_found, 405: _not_found},  # type: ignore[dict-item]
        lifespan=life,
    )
    app.state.site = site
    return app


def _acting_users(gateway: Gateway, access: AccessControl, console_settings: ConsoleSettings) -> ActingUsers | None:
    if not access.rules.act_as_user:
        return None
    if not access.login_needed:
        raise ConsoleError("act_as_user needs people who log in: add --users or an [oidc] section")
    return ActingUsers(gateway, console_settings.client)


async def _check_request(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
    site = site_of(request)
    try:
        site.access.check_host(request)
        user = await site.access.identify(request)
        if length := request.headers.get("content-length"):
            check_size(request, int(length))
    except (ConsoleError, ValueError) as error:
        status = error.status if isinstance(error, ConsoleError) else 400
        return PlainTextResponse(str(error), status_code=status, headers=HEADERS)
    path = request.scope["path"]  # not request.url's, which is made with the Host header (CVE-2026-48710)
    if user is None and not path.startswith(OPEN_PATHS):
        if "authorization" in request.headers:
            await asyncio.sleep(site.access.failed_login_s)
            return PlainTextResponse("Unauthorized\n", status_code=401, headers=HEADERS)
        query = request.scope["query_string"].decode("latin-1")
        after = quote(path + (f"?{query}" if query else ""), safe="")
        onward = request.method == "GET" and path != "/" and len(after) < _MAX_AFTER
        return RedirectResponse(f"/login?next={after}" if onward else "/login", status_code=303)
    if user is not None and not path.startswith(OPEN_PATHS) and path != "/logout":
        try:
            if user.rights.limited and path.split("/")[1] not in PARTIAL_PAGES:
                raise ConsoleError("this page is about the whole cluster, and your role is not", status=403)
            request.state.site = await site.for_user(user)
        except ConsoleError as error:
            return _with_headers(error_response(request, error), path)
    response = await go_on(request)
    if getattr(request.scope.get("endpoint"), "__module__", "") in _READ_RECORDS:
        # The cluster sees the console read: who looked at records is known only here.
        request.scope.setdefault(FACTS, {})
    return _with_headers(response, path)


def _with_headers(response: Response, path: str) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if path.startswith("/static/"):
        response.headers["Cache-Control"] = "max-age=3600"
    return response


async def _error_page(request: Request, error: ConsoleError) -> Response:
    return error_response(request, error)


async def _not_found(request: Request, _: Exception) -> Response:
    return error_response(request, ConsoleError(f"There is no page at {request.url.path}.", status=404))


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _ready(request: Request) -> Response:
    site = site_of(request)
    if site.sampler.snapshot is None or site.sampler.error:
        return PlainTextResponse(f"the cluster has not answered: {site.sampler.error}\n", status_code=503)
    return PlainTextResponse("ready\n")
