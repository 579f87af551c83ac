"""Logging in and out: with a name of the users file, or at the OpenID provider and back."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.client.audit.events import FACTS
from ottla.console.access import COOKIE, AccessControl, address_of
from ottla.console.errors import ConsoleError
from ottla.console.login_attempt import ATTEMPT_S, kept_attempt, local_path, new_attempt
from ottla.console.oidc import Identity, Provider
from ottla.console.site import site_of
from ottla.console.web import page_response, read_form

ATTEMPT_COOKIE = "ottla-login"
_CALLBACK = "/oidc/callback"


async def show(request: Request) -> Response:
    access = site_of(request).access
    if not access.login_needed:
        return RedirectResponse("/", status_code=303)
    return _login_page(request, failed=False)


def _login_page(request: Request, *, failed: bool) -> Response:
    access = site_of(request).access
    after = local_path(request.query_params.get("next", "/"))
    return page_response(
        request, "login.html", "", status=401 if failed else 200, failed=failed, after=after, users=access.has_users,
        provider=access.provider is not None,
    )  # fmt: skip


async def login(request: Request) -> Response:
    site = site_of(request)
    form_data = await read_form(request, max_fields=5)
    name, password = str(form_data.get("name", "")), str(form_data.get("password", ""))
    request.scope[FACTS] = {"event": "login", "principal": f"User:{name}", "resources": ["/login"]}
    cookie = await site.access.login(name, password, address_of(request))
    if cookie is None:
        await asyncio.sleep(site.access.failed_login_s)
        return _login_page(request, failed=True)
    answer = RedirectResponse(local_path(request.query_params.get("next", "/")), status_code=303)
    return _logged_in(request, answer, cookie)


def _logged_in(request: Request, answer: Response, cookie: str) -> Response:
    """Ends the browser's session from before: a token that was planted there must not become a login."""
    site_of(request).access.sessions.end(request.cookies.get(COOKIE, ""))
    secure = _outside(request).startswith("https:")
    answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


async def logout(request: Request) -> Response:
    """Ends the session here, then at the provider.

    A page links to the provider: the content policy refuses forms to other sites.
    """
    access = site_of(request).access
    session = access.sessions.end(request.cookies.get(COOKIE, ""))
    where = None
    if session is not None and session.identity is not None and access.provider is not None:
        provider, token = access.provider, session.identity.id_token
        try:
            where = await access.provider_calls.run(lambda: provider.logout_url(token, _outside(request) + "/login"))
        except ConsoleError:  # the session here is over in any case
            where = None
    answer: Response = RedirectResponse("/login", status_code=303)
    if where is not None:
        request.state.user = None
        answer = page_response(request, "onward.html", "", title="Logged out", where=where, words="to the provider")
    answer.delete_cookie(COOKIE, path="/")
    return answer


# OpenID Connect


def _provider(access: AccessControl) -> Provider:
    if access.provider is None:
        raise ConsoleError("this console has no OpenID provider", status=404)
    return access.provider


def _outside(request: Request) -> str:
    """The console's address as browsers write it: the operator's word, or else the host that was checked before."""
    oidc = site_of(request).access.rules.oidc
    public = oidc.public_url if oidc is not None else ""
    return public or f"{request.url.scheme}://{request.headers.get('host', '')}"


async def begin(request: Request) -> Response:
    site = site_of(request)
    provider = _provider(site.access)
    attempt = new_attempt(_outside(request) + _CALLBACK, request.query_params.get("next", "/"))
    where = await site.access.provider_calls.run(lambda: provider.login_url(attempt))
    answer = RedirectResponse(where, status_code=303)
    # Lax: the provider's page sends the browser back, and a strict cookie would stay at home.
    answer.set_cookie(
        ATTEMPT_COOKIE, site.access.seal(attempt.claims()), max_age=int(ATTEMPT_S), httponly=True, samesite="lax",
        secure=_outside(request).startswith("https:"), path="/oidc/",
    )  # fmt: skip
    return answer


async def finish(request: Request) -> Response:
    site = site_of(request)
    provider = _provider(site.access)
    attempt = kept_attempt(site.access.unseal(request.cookies.get(ATTEMPT_COOKIE, "")))
    if attempt is None:
        raise ConsoleError("this login was not begun in this browser, or too long ago; log in again", status=403)
    parameters = request.query_params

    facts: dict[str, Any] = {"event": "login", "resources": [_CALLBACK]}
    request.scope[FACTS] = facts

    def exchange() -> Identity:
        return provider.exchange(attempt, provider.check_answer(attempt, parameters))

    try:
        identity = await site.access.provider_calls.run(exchange)
        facts["principal"] = f"User:{identity.name}"
        cookie = site.access.login_as(identity)
    except ConsoleError as error:
        answer = page_response(
            request, "error.html", "", status=error.status, title="The login did not work", message=error.message
        )
    else:
        # A page of ours links onward: browsers do not send the strict cookie after a redirect from a different site.
        onward = page_response(
            request, "onward.html", "", title="Logged in", where=attempt.next, words="to the console"
        )
        answer = _logged_in(request, onward, cookie)  # type: ignore[assignment]
    answer.delete_cookie(ATTEMPT_COOKIE, path="/oidc/")
    return answer


ROUTES = [
    Route("/login", show),
    Route("/login", login, methods=["POST"]),
    Route("/logout", logout, methods=["POST"]),
    Route("/oidc/login", begin),
    Route("/oidc/callback", finish),
]
