"""The schema registry as the console uses it: errors are ConsoleErrors, and schemas are kept. Synchronous; call it in a
thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ottla.client.errors import RegistryRefused, RegistryUnreachable
from ottla.client.schema_registry import RegistryClient
from ottla.console.errors import ConsoleError
from ottla.console.upstream import upstream

_TIMEOUT_S = 5.0
_MAX_SCHEMAS = 1_000


class ConsoleRegistry(RegistryClient):
    def __init__(self, url: str) -> None:
        self.configured = bool(url)
        """Whether the console has a registry at all."""
        if url:
            upstream(url, "the schema registry")  # its own error for an address that is not http(s)
            super().__init__(url, timeout_s=_TIMEOUT_S)
        else:
            self.url = ""
        self._by_id: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def call(self, method: str, *path: str, body: Any = None, query: dict[str, str] | None = None) -> Any:
        """The decoded response; ConsoleError with the registry's own message otherwise."""
        if not self.configured:
            raise ConsoleError("no schema registry is set; start the console with --registry URL", status=404)
        try:
            return super().call(method, *path, body=body, query=query)
        except RegistryRefused as error:
            raise ConsoleError(f"the registry answered {error.code}: {error.message}", status=error.status) from error
        except RegistryUnreachable as error:
            raise ConsoleError(str(error), status=503) from error

    def schema(self, schema_id: int) -> dict[str, Any]:
        """A schema by id with its references resolved into `resolved`: name -> text. Schemas never change: kept."""
        schema = self._by_id.get(schema_id)
        if schema is None:
            schema = super().schema(schema_id)
            schema["resolved"] = self._references(schema.get("references") or [], {})
            self._by_id[schema_id] = schema
            if len(self._by_id) > _MAX_SCHEMAS:
                self._by_id.popitem(last=False)
        return schema

    def _references(self, references: list[dict[str, Any]], texts: dict[str, str]) -> dict[str, str]:
        for reference in references:
            name = str(reference["name"])
            if name in texts:
                continue
            target = self.version(str(reference["subject"]), int(reference["version"]))
            self._references(target.get("references") or [], texts)
            texts[name] = str(target["schema"])
        return texts
