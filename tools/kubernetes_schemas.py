"""Trims Kubernetes' OpenAPI definitions to the kinds that `deploy/` has: `python -m tools.kubernetes_schemas SWAGGER_JSON`.

SWAGGER_JSON is `api/openapi-spec/swagger.json` of the Kubernetes sources (Apache-2.0, see NOTICE). Descriptions stay behind.
An object with named fields accepts no other field, so that a misspelled field is an error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent.parent / "tests" / "deploy" / "kubernetes-schemas.json"
VERSION = "1.36.3"
KINDS = {
    "v1": ("ConfigMap", "Namespace", "Pod", "Secret", "Service", "ServiceAccount"),
    "apps/v1": ("Deployment", "StatefulSet"),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "policy/v1": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io/v1": ("Role", "RoleBinding"),
}
_PREFIX = "#/definitions/"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_KEPT = ("type", "format", "required", "enum")


def trimmed(swagger: dict[str, Any]) -> dict[str, Any]:
    definitions = swagger["definitions"]
    kinds = {}
    for name, definition in definitions.items():
        for row in definition.get("x-kubernetes-group-version-kind", ()):
            version = "/".join(filter(None, (row["group"], row["version"])))
            if row["kind"] in KINDS.get(version, ()):
                kinds[f"{version} {row['kind']}"] = name
    kept: dict[str, Any] = {}
    waiting = sorted(kinds.values())
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = _SPECIAL.get(name) or _schema(definitions[name])
            waiting += _references(kept[name])
    return {"kubernetes": VERSION, "kinds": kinds, "definitions": kept}


_SPECIAL: dict[str, dict[str, Any]] = {
    _INT_OR_STRING: {"type": ["integer", "string"]},
    _QUANTITY: {"type": ["number", "string"]},
}


def _schema(definition: dict[str, Any]) -> dict[str, Any]:
    schema = {name: definition[name] for name in _KEPT if name in definition}
    if "$ref" in definition:
        schema["$ref"] = definition["$ref"]
    if "items" in definition:
        schema["items"] = _schema(definition["items"])
    if "properties" in definition:
        schema["properties"] = {name: _schema(field) for name, field in definition["properties"].items()}
        schema["additionalProperties"] = False
    elif isinstance(definition.get("additionalProperties"), dict):
        schema["additionalProperties"] = _schema(definition["additionalProperties"])
    return schema


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for value in schema for name in _references(value)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].removeprefix(_PREFIX)] if isinstance(schema.get("$ref"), str) else []
    return own + [name for value in schema.values() for name in _references(value)]


def main() -> None:
    if len(sys.argv) != len(("program", "file")):
        raise SystemExit(__doc__)
    made = trimmed(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    OUT.write_text(
        json.dumps(made, sort_keys=True, separators=(",", ":")).replace('"io.k8s', '\n"io.k8s') + "\n", "utf-8"
    )


if __name__ == "__main__":
    main()
