"""The documents of one JSON Schema: its own and those that it refers to, and how `$ref` finds its way among them.

A `Side` is a schema in its place: the document that its `$ref` start from, and the draft that defines its keywords.
Keywords that the draft does not have are taken out here, so that no rule sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import DefragResult, unquote, urldefrag, urljoin

from ottla.registry.schemas.budget import Budget, given_or_new
from ottla.registry.schemas.json_keywords import ANNOTATIONS, DRAFTS, IGNORED
from ottla.registry.schemas.json_text import dump_json
from ottla.registry.schemas.parsed import SchemaProblem

_VALUES = frozenset({"enum", "const", "default", "examples"})
_MAX_ID = 2048
"""Characters of an `$id`, joined with those around it: each `$ref` is joined with it, here and by jsonschema-rs."""
_ANYTHING: dict[str, Any] = {}
_NOTHING: dict[str, Any] = {"not": {}}


class Documents:
    def __init__(self, root: Any, references: Mapping[str, Any], budget: Budget | None = None) -> None:
        self._referenced = references
        self._root = root
        self._ids: dict[str, Any] = {}
        self._dynamic: dict[str, list[tuple[Any, Any]]] = {}
        """Each `$dynamicAnchor` with its schemas and their documents."""
        self._effective: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._drafts: dict[int, str] = {}
        for document in (*references.values(), root):
            self._collect(document, "", document, given_or_new(budget))
        base = root.get("$id") or root.get("id") if isinstance(root, dict) else None
        self._base = base if isinstance(base, str) else ""
        self._draft = _draft_of(root) or "7"

    @property
    def root(self) -> Side:
        return Side(self._root, self._root, self)

    def same_text(self, other: Documents) -> bool:
        """As text: in Python 1 == True, in JSON it is not."""
        if self._root != other._root or self._referenced != other._referenced:
            return False
        return dump_json([self._root, self._referenced]) == dump_json([other._root, other._referenced])

    def _collect(self, schema: Any, base: str, home: Any, budget: Budget) -> None:
        """Every `$id`, `$anchor` and `$dynamicAnchor` of a document."""
        budget.spend()
        if isinstance(schema, list):
            for item in schema:
                self._collect(item, base, home, budget)
        if not isinstance(schema, dict):
            return
        own = schema.get("$id", schema.get("id"))
        if isinstance(own, str):
            base = _joined(base, own[: _MAX_ID + 1])
            if len(base) > _MAX_ID:
                raise SchemaProblem(f"an $id of more than {_MAX_ID} characters, with those around it")
            self._ids.setdefault(base.rstrip("#"), schema)
        home = _home(schema, home)
        anchor = schema.get("$anchor")
        if isinstance(anchor, str):
            self._ids.setdefault(f"{_without_fragment(base).url}#{anchor}", schema)
        dynamic = schema.get("$dynamicAnchor")
        if isinstance(dynamic, str):
            self._ids.setdefault(f"{_without_fragment(base).url}#{dynamic}", schema)
            self._dynamic.setdefault(dynamic, []).append((schema, home))
        if schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append((schema, home))
        for name, value in schema.items():
            if name not in _VALUES:
                self._collect(value, base, home, budget)

    def draft(self, home: Any) -> str:
        """A document without `$schema` has the draft of the one that refers to it."""
        draft = self._drafts.get(id(home))
        if draft is None:
            draft = self._drafts[id(home)] = _draft_of(home) or self._draft
        return draft

    def effective(self, schema: dict[str, Any], draft: str) -> dict[str, Any]:
        """The schema without keywords that its draft ignores; the same object each time."""
        alone = draft in {"4", "6", "7"} and isinstance(schema.get("$ref"), str) and len(schema) > 1
        if not alone and IGNORED[draft].isdisjoint(schema):
            return schema
        reduced = self._effective.get(id(schema))
        if reduced is None:
            kept = {
                name: value for name, value in schema.items()
                if name not in IGNORED[draft] and (not alone or name == "$ref" or name in ANNOTATIONS)
            }  # fmt: skip
            if len(kept) == len(schema):
                return schema
            reduced = self._effective[id(schema)] = (schema, kept)
        return reduced[1]

    def retrieve(self, uri: str) -> Any:
        """What jsonschema-rs asks for; ValueError when no reference has that name."""
        document = self._document(uri.removeprefix("json-schema:///"))
        if document is None:
            raise ValueError(f"no reference is named {uri.removeprefix('json-schema:///')[:200]}")
        return document

    def _document(self, name: str) -> Any:
        if name in self._referenced:
            return self._referenced[name]
        if name in self._ids:
            return self._ids[name]
        # A relative $ref was joined with the $id of the document that has it.
        matching = [other for other in self._referenced if name.endswith(f"/{other}")]
        return self._referenced[max(matching, key=len)] if matching else None

    def resolve(self, ref: str, home: Any) -> tuple[Any, Any]:
        """The schema that `ref` means inside the document `home`, and the document that it is in."""
        url, fragment = _without_fragment(ref)
        own = home.get("$id") if isinstance(home, dict) else None
        base = _joined(self._base, own) if isinstance(own, str) else self._base
        if not url:
            document = home
        else:
            document = self._document(_joined(base, url))
            if document is None:
                document = self._document(url)
            if document is None:
                return True, home
        if not fragment:
            return document, document
        if not fragment.startswith("/"):
            anchored = self._ids.get(f"{_joined(base, url)}#{fragment}")
            return self._ids.get(f"#{fragment}", True) if anchored is None else anchored, document
        return _pointer(document, fragment)

    def dynamic(self, ref: str, home: Any) -> list[tuple[Any, Any]]:
        """All schemas that a `$dynamicRef` (or `$recursiveRef`) may mean, on every path to it."""
        schema, document = self.resolve(ref, home)
        name = _without_fragment(ref).fragment
        marked = isinstance(schema, dict) and (
            schema.get("$dynamicAnchor") == name if name else schema.get("$recursiveAnchor") is True
        )
        return self._dynamic.get(name, []) if marked else [(schema, document)]


class Anchored(dict[str, Any]):
    """A schema of a different document inside this one: its `$ref` still start from its own document, `home`."""

    def __init__(self, schema: dict[str, Any], home: Any) -> None:
        super().__init__(schema)
        self.home = home


class Side:
    """A schema and the document that its `$ref` are looked up in."""

    __slots__ = ("documents", "draft", "home", "schema")

    def __init__(self, schema: Any, home: Any, documents: Documents) -> None:
        self.documents = documents
        if not isinstance(schema, dict):
            schema = _NOTHING if schema is False else _ANYTHING
        self.home = schema.home if isinstance(schema, Anchored) else _home(schema, home)
        self.draft = documents.draft(self.home)
        self.schema: dict[str, Any] = documents.effective(schema, self.draft)

    def at(self, schema: Any) -> Side:
        return Side(schema, self.home, self.documents)

    @property
    def anything(self) -> bool:
        return self.schema.keys() <= ANNOTATIONS

    @property
    def nothing(self) -> bool:
        return self.schema.get("not") in ({}, True)

    def targets(self) -> list[Side]:
        """What `$ref`, `$dynamicRef` or `$recursiveRef` may mean; nothing when there is none of them."""
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            ref = self.schema.get(keyword)
            if isinstance(ref, str):
                target_schemas = [self.documents.resolve(ref, self.home)] if keyword == "$ref" else (
                    self.documents.dynamic(ref, self.home)
                )  # fmt: skip
                if not all(isinstance(schema, dict | bool) for schema, _ in target_schemas):
                    raise SchemaProblem(f"{ref[:200]} is not a schema")
                return [Side(schema, home, self.documents) for schema, home in target_schemas]
        return []


def _home(schema: dict[str, Any], home: Any) -> Any:
    """A schema with an `$id` of its own inside a document is a document itself."""
    own = schema.get("$id")
    return schema if isinstance(own, str) and not own.startswith("#") else home


def _draft_of(document: Any) -> str | None:
    name = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(name, str):
        return None
    return next((draft for mark, draft in DRAFTS.items() if mark in name), "2020-12")


def _pointer(document: Any, pointer: str) -> tuple[Any, Any]:
    node, home = document, document
    for raw in pointer.lstrip("/").split("/"):
        step = unquote(raw).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(step, True)
        elif isinstance(node, list) and step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(node):
            node = node[int(step)]
        else:
            return True, home
        home = _home(node, home) if isinstance(node, dict) else home
    return node, home


def _joined(base: str, reference: str) -> str:
    """SchemaProblem for what is no address, such as `//[`."""
    try:
        return urljoin(base, reference)
    except ValueError as error:
        raise SchemaProblem(f"{reference[:100]!r} is not an address: {error}") from error


def _without_fragment(reference: str) -> DefragResult:
    try:
        return urldefrag(reference)
    except ValueError as error:
        raise SchemaProblem(f"{reference[:100]!r} is not an address: {error}") from error
