"""A Confluent-compatible schema registry, asked over HTTP."""

from __future__ import annotations

import functools
import json
import urllib.error
import urllib.request
from typing import Any

from ottla.env.http_answer import HTTPException, read_answer
from ottla.tables.topics import TableError

_TIMEOUT_S = 15.0
_MAX_ANSWER_BYTES = 64 << 20
_JSON = "application/vnd.schemaregistry.v1+json"


@functools.lru_cache(maxsize=1000)
def schema_by_id(registry: str, schema_id: int) -> str:
    return str(_ask(registry, f"/schemas/ids/{schema_id}")["schema"])


def latest_schema(registry: str, subject: str) -> tuple[int, str]:
    answer = _ask(registry, f"/subjects/{subject}/versions/latest")
    return int(answer["id"]), str(answer["schema"])


def register_schema(registry: str, subject: str, schema: str, kind: str) -> int:
    body: dict[str, Any] = {"schema": schema}
    if kind != "AVRO":
        body["schemaType"] = kind
    return int(_ask(registry, f"/subjects/{subject}/versions", body)["id"])


def _ask(registry: str, path: str, body: dict[str, Any] | None = None) -> Any:
    url = registry.rstrip("/") + path
    if not url.startswith(("http://", "https://")):
        raise TableError(f"the schema registry is an http address, not {registry!r}")
    request = urllib.request.Request(  # noqa: S310 - checked above
        url, data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": _JSON, "Accept": _JSON}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked above
            return json.loads(read_answer(answer, _MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as problem:
        raise TableError(f"the schema registry says to {path}: {_words(problem)}") from problem
    except (OSError, HTTPException, ValueError) as problem:
        raise TableError(f"the schema registry {registry} does not answer: {problem}") from problem


def _words(problem: urllib.error.HTTPError) -> str:
    try:
        return problem.read(500).decode(errors="replace")
    except (OSError, HTTPException):
        return f"{problem.code} {problem.reason}"
