"""An HTTP request whose login stays with the server that it was meant for.

`urllib` follows a redirect with the same `Authorization` header, to whatever server the answer names. A request with such
a header follows redirects to its own server only, and a request with `NoRedirect` follows none.
"""

from __future__ import annotations

import ssl
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener


class NoRedirect(HTTPRedirectHandler):
    """A redirect is an answer like any other: the request is not sent again."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _SameServer(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        here, there = urlsplit(req.full_url), urlsplit(newurl)
        if req.has_header("Authorization") and (here.scheme, here.netloc) != (there.scheme, there.netloc):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def open_request(request: Request, timeout_s: float, tls: ssl.SSLContext | None = None) -> Any:
    """As `urllib.request.urlopen`; a redirect to another server raises HTTPError when the request has a login."""
    return build_opener(_SameServer(), HTTPSHandler(context=tls)).open(request, timeout=timeout_s)
