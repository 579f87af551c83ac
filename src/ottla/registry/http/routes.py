"""The table of paths. `*` is one part of the path; writes are carried out by the writer, wherever they arrive.

Each route names the role that it needs (`ottla.security.web`): readers look up and check, writers register, admins delete
and configure. The role is that of the matched route; no other module derives rights from a path.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol

from ottla.registry.errors import RegistryError, not_found
from ottla.registry.http import configuration, schemas, subjects
from ottla.registry.http.answers import Request, RestResponse
from ottla.registry.service import Registry


class Handler(Protocol):
    __name__: str

    def __call__(self, registry: Registry, request: Request, /) -> Awaitable[RestResponse]: ...


class RestRoute(NamedTuple):
    handler: Handler
    role: str
    writes: bool = False


_TABLE: dict[str, RestRoute] = {
    "GET ": RestRoute(configuration.root, "read"),
    "GET subjects": RestRoute(subjects.list_subjects, "read"),
    "POST subjects/*": RestRoute(subjects.look_up, "read"),
    "DELETE subjects/*": RestRoute(subjects.delete_subject, "admin", writes=True),
    "GET subjects/*/metadata": RestRoute(subjects.latest_with_metadata, "read"),
    "GET subjects/*/versions": RestRoute(subjects.list_versions, "read"),
    "POST subjects/*/versions": RestRoute(subjects.register, "write", writes=True),
    "GET subjects/*/versions/*": RestRoute(subjects.get_version, "read"),
    "DELETE subjects/*/versions/*": RestRoute(subjects.delete_version, "admin", writes=True),
    "GET subjects/*/versions/*/schema": RestRoute(subjects.get_schema, "read"),
    "GET subjects/*/versions/*/referencedby": RestRoute(subjects.referenced_by, "read"),
    "GET schemas": RestRoute(schemas.list_schemas, "read"),
    "GET schemas/types": RestRoute(schemas.types, "read"),
    "GET schemas/ids/*": RestRoute(schemas.by_id, "read"),
    "GET schemas/ids/*/schema": RestRoute(schemas.schema_by_id, "read"),
    "GET schemas/ids/*/subjects": RestRoute(schemas.subjects_by_id, "read"),
    "GET schemas/ids/*/versions": RestRoute(schemas.versions_by_id, "read"),
    "GET schemas/guids/*": RestRoute(schemas.by_guid, "read"),
    "GET schemas/guids/*/ids": RestRoute(schemas.ids_by_guid, "read"),
    "GET config": RestRoute(configuration.get_config, "read"),
    "PUT config": RestRoute(configuration.put_config, "admin", writes=True),
    "DELETE config": RestRoute(configuration.delete_config, "admin", writes=True),
    "GET config/*": RestRoute(configuration.get_config, "read"),
    "PUT config/*": RestRoute(configuration.put_config, "admin", writes=True),
    "DELETE config/*": RestRoute(configuration.delete_config, "admin", writes=True),
    "GET mode": RestRoute(configuration.get_mode, "read"),
    "PUT mode": RestRoute(configuration.put_mode, "admin", writes=True),
    "DELETE mode": RestRoute(configuration.delete_mode, "admin", writes=True),
    "GET mode/*": RestRoute(configuration.get_mode, "read"),
    "PUT mode/*": RestRoute(configuration.put_mode, "admin", writes=True),
    "DELETE mode/*": RestRoute(configuration.delete_mode, "admin", writes=True),
    "POST compatibility/subjects/*/versions": RestRoute(configuration.check_all, "read"),
    "POST compatibility/subjects/*/versions/*": RestRoute(configuration.check_version, "read"),
    "GET contexts": RestRoute(configuration.contexts, "read"),
    "GET v1/metadata/id": RestRoute(configuration.metadata_id, "read"),
    "GET v1/metadata/version": RestRoute(configuration.metadata_version, "read"),
}
ROUTES: dict[tuple[str, ...], dict[str, RestRoute]] = {}
for _line, _route in _TABLE.items():
    _method, _, _path = _line.partition(" ")
    ROUTES.setdefault(tuple(_path.split("/")) if _path else (), {})[_method] = _route
_ASSOCIATION = RestRoute(configuration.association, "read")
_WILD = [(pattern, methods) for pattern, methods in ROUTES.items() if "*" in pattern]


def find_route(request: Request) -> RestRoute:
    """Fills in what the wildcards matched; 404 and 405 in the registry's shape."""
    path = request.path
    if path[:1] == ("associations",):
        return _ASSOCIATION
    if path[:1] == ("contexts",) and len(path) > 2:
        request.context, path = path[1], path[2:]
    methods = ROUTES.get(path)
    if methods is None or "*" in path:
        for pattern, wild_methods in _WILD:
            if len(pattern) == len(path) and all(p in {"*", part} for p, part in zip(pattern, path, strict=True)):
                methods = wild_methods
                request.parts = [part for p, part in zip(pattern, path, strict=True) if p == "*"]
                break
    if methods is None:
        raise not_found()
    method = "GET" if request.method == "HEAD" else request.method
    if method not in methods:
        raise RegistryError(405, "HTTP 405 Method Not Allowed")
    return methods[method]
