"""Requests and answers in the registry's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from ottla.registry.errors import RegistryError

JSON_V1 = "application/vnd.schemaregistry.v1+json"
CONTENT_TYPES = (
    JSON_V1, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream",
)  # fmt: skip
MAX_BRACKETS = 500_000
"""Objects and arrays of a body, those in the text of its schema included: each takes memory, and time on the loop."""
_Body = TypeVar("_Body")


@dataclass(slots=True)
class Request:
    method: str
    path: tuple[str, ...]
    """Each part decoded by itself, so that a subject may hold a slash."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    target: str
    """Path and query as they came, for forwarding."""
    parts: list[str] = field(default_factory=list)
    """What the wildcards of the route matched."""
    context: str | None = None
    """Of /contexts/CONTEXT/..."""
    client: str = ""
    """Whose turn it is when schemas are checked: the user, or the address where there are none."""
    sees: Callable[[str], bool] = lambda _: True
    """Whether the user may know of a subject; see `subject_rights.py`."""

    def flag(self, name: str) -> bool:
        """Python's client sends True, Java's true."""
        return self.query.get(name, "").strip().lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name)
        if text is None or text == "":
            return default
        try:
            return int(text)
        except ValueError as error:
            raise RegistryError(404, "HTTP 404 Not Found") from error

    def decode(self, kind: type[_Body]) -> _Body:
        """The body; 400 with the reason when it is not JSON, 422 when it is not of this shape."""
        if self.body.count(b"[") + self.body.count(b"{") > MAX_BRACKETS:
            raise RegistryError(413, f"The request body has more than {MAX_BRACKETS} objects and arrays")
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except msgspec.ValidationError as error:
            raise RegistryError(422, f"Invalid request body: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryError(400, f"The request body is not JSON: {error}") from error


@dataclass(slots=True)
class RestResponse:
    body: bytes
    status: int = 200
    content_type: str = JSON_V1
    headers: dict[str, str] = field(default_factory=dict)


def answer(value: Any) -> RestResponse:
    return RestResponse(msgspec.json.encode(value))


def failure(error: RegistryError) -> RestResponse:
    return RestResponse(msgspec.json.encode({"error_code": error.code, "message": error.message}), error.status)
