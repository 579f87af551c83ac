"""The schema registry as the console asks it: Confluent's REST API, any server of it. Synchronous; call it in a thread."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

from ottla.console.errors import ConsoleError
from ottla.console.upstream import Upstream, upstream
from ottla.env.http_answer import HTTPException, read_answer
from ottla.env.http_request import open_request

_TIMEOUT_S = 5.0
_MAX_ANSWER = 64 * 1024 * 1024
_MAX_SCHEMAS = 1_000
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Registry:
    def __init__(self, url: str) -> None:
        self.url, login = upstream(url, "the schema registry") if url else Upstream("", {})
        self._headers = {"Accept": _CONTENT_TYPE, **login}
        self._by_id: OrderedDict[int, dict[str, Any]] = OrderedDict()

    @property
    def known(self) -> bool:
        return bool(self.url)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON; ConsoleError with the registry's own words otherwise."""
        if not self.url:
            raise ConsoleError("no schema registry is set; start the console with --registry URL", status=404)
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **({"Content-Type": _CONTENT_TYPE} if data is not None else {})}
        request = Request(self.url + path, data=data, method=method, headers=headers)  # noqa: S310 - http(s) only, checked
        try:
            with open_request(request, _TIMEOUT_S) as answer:
                return json.loads(read_answer(answer, _MAX_ANSWER))
        except HTTPError as error:
            raise ConsoleError(_reason(error), status=error.code) from error
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ConsoleError(f"the schema registry at {self.url} does not answer: {reason}", status=503) from error

    def subjects(self, *, deleted: bool = False) -> list[str]:
        found = self.call("GET", f"/subjects?deleted={str(deleted).lower()}")
        return sorted(str(name) for name in found)

    def versions(self, subject: str) -> list[int]:
        return [int(version) for version in self.call("GET", f"/subjects/{quote(subject, safe='')}/versions")]

    def version(self, subject: str, version: int | str) -> dict[str, Any]:
        return dict(self.call("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}"))

    def schema(self, schema_id: int) -> dict[str, Any]:
        """A schema by id with its references resolved into `resolved`: name -> text. Schemas never change: kept."""
        known = self._by_id.get(schema_id)
        if known is None:
            known = dict(self.call("GET", f"/schemas/ids/{schema_id}"))
            known["resolved"] = self._references(known.get("references") or [], {})
            self._by_id[schema_id] = known
            if len(self._by_id) > _MAX_SCHEMAS:
                self._by_id.popitem(last=False)
        return known

    def _references(self, references: list[dict[str, Any]], found: dict[str, str]) -> dict[str, str]:
        for reference in references:
            name = str(reference["name"])
            if name in found:
                continue
            target = self.version(str(reference["subject"]), int(reference["version"]))
            self._references(target.get("references") or [], found)
            found[name] = str(target["schema"])
        return found

    def serialized(self, schema_id: int) -> str:
        """A Protobuf schema as a base64 FileDescriptorProto."""
        return str(self.call("GET", f"/schemas/ids/{schema_id}?format=serialized")["schema"])


def _reason(error: HTTPError) -> str:
    try:
        said = json.loads(error.read(65_536))
        return f"the registry answered {said.get('error_code', error.code)}: {said.get('message', error.reason)}"
    except (ValueError, OSError, HTTPException, AttributeError):
        return f"the registry answered {error.code}: {error.reason}"
