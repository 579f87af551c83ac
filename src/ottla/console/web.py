"""What every page goes through: who asks, errors in words, safe headers, forms with their token.

A page is `async def page(request) -> Response`; `page_response` renders a template with what the frame needs, `form`
reads a form and checks that it may change something.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ottla.console.access import ANYBODY
from ottla.console.errors import ConsoleError
from ottla.console.render import render
from ottla.console.settings import MAX_BODY_BYTES, MAX_LOGIN_BYTES
from ottla.console.site import site_of
from ottla.security.web_headers import SECURITY_HEADERS

Page = Callable[[Request], Awaitable[Response]]
OPEN_PATHS = ("/login", "/oidc/", "/static/", "/healthz", "/readyz")
PARTIAL_PAGES = (
    "", "overview", "topics", "new-topic", "groups", "schemas", "sql", "lineage", "lineage.json", "metrics",
)  # fmt: skip
"""First words of the addresses for people with rights on some topics only; these pages show those topics and no other."""
HEADERS = {
    **SECURITY_HEADERS,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TITLES = {400: "The request failed", 403: "Not allowed", 404: "Not found", 503: "The cluster does not answer"}


def page_response(request: Request, template: str, here: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    site = site_of(request)
    html = render(
        template,
        here=here,
        site=site.settings,
        user=site.access.user(request) or ANYBODY,
        csrf=site.access.csrf(request),
        notice=request.query_params.get("notice", "")[:300],
        **values,
    )
    # JSON may hold half of a surrogate pair (RFC 8259, 8.2), which has no UTF-8: one such record must not cost the page.
    return HTMLResponse(html.encode(errors="replace"), status_code=status)


def error_response(request: Request, error: ConsoleError) -> Response:
    title = _TITLES.get(error.status, "Error")
    return page_response(request, "error.html", "", status=error.status, title=title, message=error.message)


def check_size(request: Request, size: int) -> None:
    """ConsoleError when a body of so many bytes is too large for who sends it."""
    limit = MAX_LOGIN_BYTES if site_of(request).access.user(request) is None else MAX_BODY_BYTES
    if size > limit:
        raise ConsoleError(f"more than {limit >> 10:,} KiB is too much for one request", status=413)


class _Counted(Request):
    """A request whose body is counted while it comes: its length may not have been announced."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        size = 0
        async for chunk in super().stream():
            size += len(chunk)
            check_size(self, size)
            yield chunk


async def read_form(request: Request, *, max_files: int = 0, max_fields: int = 200) -> FormData:
    """Raises ConsoleError for a form that is too large, or not UTF-8: the parser takes every codec of Python, and some of
    them need minutes for a megabyte."""
    _, options = parse_options_header(request.headers.get("content-type"))
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise ConsoleError("a form must be UTF-8", status=415)
    counted = _Counted(request.scope, request.receive)
    return await counted.form(max_files=max_files, max_fields=max_fields, max_part_size=MAX_BODY_BYTES)


async def form(request: Request, role: str = "operator", *, anywhere: bool = False) -> FormData:
    """The form of a request that may change what its address names; ConsoleError otherwise.

    `anywhere`: what is changed stands in the form, and the page calls `AccessControl.require` for it.
    """
    form_data = await read_form(request, max_files=4)
    site_of(request).access.check_change(request, str(form_data.get("csrf", "")), role, anywhere=anywhere)
    return form_data


def text(form_data: FormData, name: str, default: str = "") -> str:
    value = form_data.get(name, default)
    return value if isinstance(value, str) else default


def number(value: str, name: str, default: int | None = None) -> int:
    if value.strip() == "" and default is not None:
        return default
    try:
        return int(value)
    except ValueError:
        raise ConsoleError(f"{name}: {value!r} is not a whole number") from None


def back(path: str, notice: str = "") -> RedirectResponse:
    """After a change: redirects to the page, with a line that reports what happened."""
    return RedirectResponse(path + ("?" + urlencode({"notice": notice}) if notice else ""), status_code=303)
