"""Manifests against the schemas of Kubernetes in `tests/deploy/kubernetes-schemas.json` (`tools/kubernetes_schemas.py`)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

FILE = Path(__file__).resolve().parents[1] / "deploy" / "kubernetes-schemas.json"


def problems_of(manifest: dict[str, Any]) -> list[str]:
    """What the API server would refuse: unknown and missing fields, wrong types, an unknown kind."""
    kind = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
    validator = _validator(kind)
    if validator is None:
        return [f"{kind}: the schemas have no such kind"]
    return [
        f"{kind} {'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in validator.iter_errors(manifest)
    ]


@cache
def _schemas() -> Any:
    return json.loads(FILE.read_text("utf-8"))


@cache
def _validator(kind: str) -> Any:
    schemas = _schemas()
    name = schemas["kinds"].get(kind)
    if name is None:
        return None
    return jsonschema_rs.Draft7Validator({"$ref": f"#/definitions/{name}", "definitions": schemas["definitions"]})
