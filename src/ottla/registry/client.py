"""A small client of the REST API, for the command line and for validation at the log. Blocking; standard library only."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from ottla.env.http_answer import HTTPException, read_answer
from ottla.env.http_request import open_request
from ottla.registry.errors import RegistryError

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_ANSWER_BYTES = 64 << 20


class Unreachable(Exception):
    """No answer from the registry; one line."""


class RegistryClient:
    def __init__(self, url: str, *, user: str | None = None, ca_file: str | None = None, timeout_s: float = 30) -> None:
        """`user` is NAME:PASSWORD; it may also stand in the URL."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.username and user is None:
            user = f"{parts.username}:{parts.password or ''}"
        self.url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._user = user
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None

    def call(self, method: str, *path: str, body: Any = None, query: dict[str, str] | None = None) -> Any:
        """The decoded answer; RegistryError with the registry's own code, or Unreachable."""
        target = "/".join(quote(part, safe="") for part in path)
        url = f"{self.url}/{target}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, method=method)  # noqa: S310 - the user's own URL
        request.add_header("Content-Type", _CONTENT_TYPE)
        request.add_header("Accept", _CONTENT_TYPE)
        if self._user:
            request.add_header("Authorization", "Basic " + base64.b64encode(self._user.encode()).decode())
        try:
            with open_request(request, self._timeout_s, self._tls) as response:
                return json.loads(read_answer(response, _MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            raise _error(error) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(f"no answer from the registry at {self.url}: {reason}") from error


def _error(error: urllib.error.HTTPError) -> RegistryError:
    with error:
        try:
            body = json.loads(error.read(_MAX_ANSWER_BYTES))
            return RegistryError(int(body["error_code"]), str(body["message"]))
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            return RegistryError(error.code, f"HTTP {error.code} {error.reason}")
