"""Logging in and out, where the console was started with a users file."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.client.audit.events import FACTS
from ottla.console.access import COOKIE, address_of
from ottla.console.site import site_of
from ottla.console.web import page_response


async def show(request: Request) -> Response:
    if not site_of(request).access.login_needed:
        return RedirectResponse("/", status_code=303)
    return page_response(request, "login.html", "", failed=False)


async def login(request: Request) -> Response:
    site = site_of(request)
    given = await request.form(max_files=0, max_fields=5)
    name, password = str(given.get("name", "")), str(given.get("password", ""))
    request.scope[FACTS] = {"event": "login", "principal": f"User:{name}", "resources": ["/login"]}
    cookie = await site.access.login(name, password, address_of(request))
    if cookie is None:
        await asyncio.sleep(site.access.failed_login_s)
        return page_response(request, "login.html", "", status=401, failed=True)
    answer = RedirectResponse("/", status_code=303)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


async def logout(_: Request) -> Response:
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(COOKIE, path="/")
    return answer


ROUTES = [
    Route("/login", show),
    Route("/login", login, methods=["POST"]),
    Route("/logout", logout, methods=["POST"]),
]
