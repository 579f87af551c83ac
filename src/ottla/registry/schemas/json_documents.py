"""The documents of one JSON Schema: its own and those that it refers to, and how `$ref` finds its way among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin


class Documents:
    def __init__(self, root: Any, others: Mapping[str, Any]) -> None:
        self._others = others
        self._root = root
        self._ids: dict[str, Any] = {}
        for document in (*others.values(), root):
            self._collect(document, "")
        base = root.get("$id") or root.get("id") if isinstance(root, dict) else None
        self._base = base if isinstance(base, str) else ""

    def _collect(self, schema: Any, base: str) -> None:
        """Every `$id` and `$anchor` of a document."""
        if isinstance(schema, list):
            for item in schema:
                self._collect(item, base)
        if not isinstance(schema, dict):
            return
        own = schema.get("$id", schema.get("id"))
        if isinstance(own, str):
            base = urljoin(base, own)
            self._ids.setdefault(base.rstrip("#"), schema)
        anchor = schema.get("$anchor")
        if isinstance(anchor, str):
            self._ids.setdefault(f"{urldefrag(base).url}#{anchor}", schema)
        for name, value in schema.items():
            if name not in {"enum", "const", "default", "examples"}:
                self._collect(value, base)

    def retrieve(self, uri: str) -> Any:
        """What jsonschema-rs asks for; ValueError when no reference has that name."""
        found = self._document(uri.removeprefix("json-schema:///"))
        if found is None:
            raise ValueError(f"no reference is named {uri.removeprefix('json-schema:///')}")
        return found

    def _document(self, name: str) -> Any:
        if name in self._others:
            return self._others[name]
        if name in self._ids:
            return self._ids[name]
        # A relative $ref was joined with the $id of the document that has it.
        matching = [other for other in self._others if name.endswith(f"/{other}")]
        return self._others[max(matching, key=len)] if matching else None

    def resolve(self, ref: str, home: Any) -> tuple[Any, Any]:
        """The schema that `ref` means inside the document `home`, and the document that it is in."""
        url, fragment = urldefrag(ref)
        if not url:
            document = home
        else:
            document = self._document(url)
            if document is None:
                document = self._document(urljoin(self._base, url))
            if document is None:
                return True, home
        if not fragment:
            return document, document
        if not fragment.startswith("/"):
            base = self._base if url == "" else url
            return self._ids.get(f"{base}#{fragment}", self._ids.get(f"#{fragment}", True)), document
        return _pointer(document, fragment), document


def _pointer(document: Any, pointer: str) -> Any:
    found = document
    for raw in pointer.lstrip("/").split("/"):
        step = unquote(raw).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(step, True)
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return True
    return found
