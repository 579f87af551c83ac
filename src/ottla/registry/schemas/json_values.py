"""Whether a sub-schema accepts one value: for writers that list their values.

A sub-schema means what the draft of its document says: a list in `items` is draft 7's, and no schema at all in 2020-12.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from ottla.registry.schemas.json_documents import Documents

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
"""For every pattern of a schema: a linear engine, and at most so many steps back where look-around or a back reference
needs them (0.3 ms). A text that needs more does not match."""
_HOME = "ottla:///home"
_VALUES = frozenset({"enum", "const", "default", "examples"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})


def accepted(schema: dict[str, Any], value: Any, documents: Documents, home: Any, *, unsure: bool) -> bool:
    """The sub-schema stands alone here, so its `#/...` are pointed at the document that it came from. `unsure` is the
    answer where the sub-schema cannot be read: a writer might let the value through, a reader might refuse it."""

    def retrieve(uri: str) -> Any:
        return home if uri == _HOME else documents.retrieve(uri)

    draft = home.get("$schema", DRAFT_7) if isinstance(home, dict) else DRAFT_7
    alone = {"$schema": draft, **_rehomed(schema)}
    try:
        return bool(jsonschema_rs.validator_for(alone, retriever=retrieve, pattern_options=PATTERNS).is_valid(value))
    except (ValueError, TypeError):
        return unsure


def _rehomed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_rehomed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    rehomed = {name: inner if name in _VALUES else _members(inner) if name in _NAMED else _rehomed(inner)
               for name, inner in schema.items()}  # fmt: skip
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#"):
        rehomed["$ref"] = f"{_HOME}{ref}"
    return rehomed


def _members(named: Any) -> Any:
    """Schemas by a name, which may be any keyword's too."""
    return {name: _rehomed(inner) for name, inner in named.items()} if isinstance(named, dict) else named
