"""The client of a schema registry: Confluent's REST API, of any server that has it. Blocking; standard library only.

A login is sent to the registry's own address and to no other server (`env/http_request.py`). A response counts only if
it came completely (`env/http_answer.py`).
"""

from __future__ import annotations

import base64
import functools
import json
import ssl
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import Request

from ottla.client.errors import RegistryRefused, RegistryUnreachable
from ottla.env.http_answer import HTTPException, read_answer
from ottla.env.http_request import open_request
from ottla.model.user_error import UserError

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_ANSWER_BYTES = 64 << 20
_MAX_ERROR_BYTES = 1 << 20
_PIPELINE_TIMEOUT_S = 15.0
_MAX_REFERENCES = 200


class RegistryClient:
    def __init__(self, url: str, *, user: str | None = None, ca_file: str | None = None, timeout_s: float = 30) -> None:
        """`user` is NAME:PASSWORD. The URL may hold the same (percent-encoded); http:// may be left out."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https"):
            raise UserError("the address of the schema registry must begin with http:// or https://")
        if parts.username and user is None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        self.url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None

    def call(self, method: str, *path: str, body: Any = None, query: dict[str, str] | None = None) -> Any:
        """The decoded response; RegistryRefused or RegistryUnreachable."""
        target = "/".join(quote(part, safe="") for part in path)
        url = f"{self.url}/{target}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = Request(url, data, self._headers, method=method)  # noqa: S310 - http or https, checked above
        try:
            with open_request(request, self._timeout_s, self._tls) as response:
                return json.loads(read_answer(response, _MAX_ANSWER_BYTES))
        except HTTPError as error:
            raise _refusal(error) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RegistryUnreachable(f"the schema registry at {self.url} does not answer: {reason}") from error

    def subjects(self, *, deleted: bool = False) -> list[str]:
        return sorted(str(name) for name in self.call("GET", "subjects", query={"deleted": str(deleted).lower()}))

    def versions(self, subject: str) -> list[int]:
        return [int(version) for version in self.call("GET", "subjects", subject, "versions")]

    def version(self, subject: str, version: int | str = "latest") -> dict[str, Any]:
        return dict(self.call("GET", "subjects", subject, "versions", str(version)))

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """`schema` has the keys `schema`, and `schemaType` unless it is Avro; the id of the schema."""
        return int(self.call("POST", "subjects", subject, "versions", body=schema)["id"])

    def schema(self, schema_id: int) -> dict[str, Any]:
        return dict(self.call("GET", "schemas", "ids", str(schema_id)))

    def serialized(self, schema_id: int) -> str:
        """A Protobuf schema as a base64 FileDescriptorProto."""
        return str(self.call("GET", "schemas", "ids", str(schema_id), query={"format": "serialized"})["schema"])


def _refusal(error: HTTPError) -> RegistryRefused:
    with error:
        try:
            body = json.loads(error.read(_MAX_ERROR_BYTES))
            return RegistryRefused(int(body["error_code"]), str(body["message"]), error.code)
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            return RegistryRefused(error.code, f"HTTP {error.code} {error.reason}", error.code)


# ------------------------------------------------------------------- by address, for functions that Spark sends to workers


@functools.lru_cache(maxsize=100)
def _client(url: str) -> RegistryClient:
    return RegistryClient(url, timeout_s=_PIPELINE_TIMEOUT_S)


@functools.lru_cache(maxsize=1000)
def schema_by_id(url: str, schema_id: int) -> str:
    """The text of a schema. A schema never changes, so the text is kept."""
    return str(_client(url).schema(schema_id)["schema"])


@functools.lru_cache(maxsize=1000)
def schema_texts(url: str, schema_id: int) -> tuple[str, ...]:
    """The texts of the schemas that a schema refers to, each after those that it needs itself, and then its own text."""
    texts: dict[tuple[str, int], str] = {}
    schema = _client(url).schema(schema_id)
    _add_references(url, schema, texts)
    return (*texts.values(), str(schema["schema"]))


def _add_references(url: str, schema: dict[str, Any], texts: dict[tuple[str, int], str]) -> None:
    for reference in schema.get("references") or ():
        place = str(reference["subject"]), int(reference["version"])
        if place not in texts:
            if len(texts) >= _MAX_REFERENCES:
                raise UserError(f"a schema of {url} refers to more than {_MAX_REFERENCES} schemas")
            needed = _client(url).version(*place)
            _add_references(url, needed, texts)
            texts[place] = str(needed["schema"])


@functools.lru_cache(maxsize=1000)
def protobuf_file(url: str, schema_id: int) -> bytes:
    """A Protobuf schema as a FileDescriptorProto."""
    return base64.b64decode(_client(url).serialized(schema_id))


def latest_schema(url: str, subject: str) -> tuple[int, str]:
    """Id and text of a subject's newest version."""
    version = _client(url).version(subject)
    return int(version["id"]), str(version["schema"])


def subject_versions(url: str, subject: str) -> list[int]:
    return _client(url).versions(subject)


def subject_version(url: str, subject: str, version: int) -> int:
    """The id of its schema."""
    return int(_client(url).version(subject, version)["id"])


def register_schema(url: str, subject: str, schema: str, kind: str) -> int:
    return _client(url).register(subject, {"schema": schema} | ({} if kind == "AVRO" else {"schemaType": kind}))
