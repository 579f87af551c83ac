"""Whether a sub-schema accepts one value: for writers that list their values."""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from ottla.registry.schemas.json_documents import Documents

_HOME = "ottla:///home"


def accepted(schema: dict[str, Any], value: Any, documents: Documents, home: Any) -> bool:
    """The sub-schema stands alone here, so its `#/...` are pointed at the document that it came from."""

    def retrieve(uri: str) -> Any:
        return home if uri == _HOME else documents.retrieve(uri)

    try:
        return bool(jsonschema_rs.validator_for(_rehomed(schema), retriever=retrieve).is_valid(value))
    except (ValueError, TypeError):
        return False


def _rehomed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_rehomed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    ref = schema.get("$ref")
    rehomed = {name: _rehomed(inner) for name, inner in schema.items()}
    if isinstance(ref, str) and ref.startswith("#"):
        rehomed["$ref"] = f"{_HOME}{ref}"
    return rehomed
