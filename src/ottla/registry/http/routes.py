"""The table of paths. `*` is one part of the path; writes are carried out by the writer, wherever they arrive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ottla.registry.errors import RegistryError, not_found
from ottla.registry.http import configuration, schemas, subjects
from ottla.registry.http.answers import Answer, Request
from ottla.registry.service import Registry

Handler = Callable[[Registry, Request], Awaitable[Answer]]


class Route(NamedTuple):
    handler: Handler
    writes: bool = False


_TABLE: dict[str, Route] = {
    "GET ": Route(configuration.root),
    "GET subjects": Route(subjects.list_subjects),
    "POST subjects/*": Route(subjects.look_up),
    "DELETE subjects/*": Route(subjects.delete_subject, writes=True),
    "GET subjects/*/metadata": Route(subjects.latest_with_metadata),
    "GET subjects/*/versions": Route(subjects.list_versions),
    "POST subjects/*/versions": Route(subjects.register, writes=True),
    "GET subjects/*/versions/*": Route(subjects.get_version),
    "DELETE subjects/*/versions/*": Route(subjects.delete_version, writes=True),
    "GET subjects/*/versions/*/schema": Route(subjects.get_schema),
    "GET subjects/*/versions/*/referencedby": Route(subjects.referenced_by),
    "GET schemas": Route(schemas.list_schemas),
    "GET schemas/types": Route(schemas.types),
    "GET schemas/ids/*": Route(schemas.by_id),
    "GET schemas/ids/*/schema": Route(schemas.schema_by_id),
    "GET schemas/ids/*/subjects": Route(schemas.subjects_by_id),
    "GET schemas/ids/*/versions": Route(schemas.versions_by_id),
    "GET schemas/guids/*": Route(schemas.by_guid),
    "GET schemas/guids/*/ids": Route(schemas.ids_by_guid),
    "GET config": Route(configuration.get_config),
    "PUT config": Route(configuration.put_config, writes=True),
    "DELETE config": Route(configuration.delete_config, writes=True),
    "GET config/*": Route(configuration.get_config),
    "PUT config/*": Route(configuration.put_config, writes=True),
    "DELETE config/*": Route(configuration.delete_config, writes=True),
    "GET mode": Route(configuration.get_mode),
    "PUT mode": Route(configuration.put_mode, writes=True),
    "DELETE mode": Route(configuration.delete_mode, writes=True),
    "GET mode/*": Route(configuration.get_mode),
    "PUT mode/*": Route(configuration.put_mode, writes=True),
    "DELETE mode/*": Route(configuration.delete_mode, writes=True),
    "POST compatibility/subjects/*/versions": Route(configuration.check_all),
    "POST compatibility/subjects/*/versions/*": Route(configuration.check_version),
    "GET contexts": Route(configuration.contexts),
    "GET v1/metadata/id": Route(configuration.metadata_id),
    "GET v1/metadata/version": Route(configuration.metadata_version),
}
ROUTES: dict[tuple[str, ...], dict[str, Route]] = {}
for _line, _route in _TABLE.items():
    _method, _, _path = _line.partition(" ")
    ROUTES.setdefault(tuple(_path.split("/")) if _path else (), {})[_method] = _route
_WILD = [(pattern, methods) for pattern, methods in ROUTES.items() if "*" in pattern]


def find_route(request: Request) -> Route:
    """Fills in what the wildcards matched; 404 and 405 in the registry's shape."""
    path = request.path
    if path[:1] == ("associations",):
        return Route(configuration.association)
    if path[:1] == ("contexts",) and len(path) > 2:
        request.context, path = path[1], path[2:]
    methods = ROUTES.get(path)
    if methods is None or "*" in path:
        for pattern, found in _WILD:
            if len(pattern) == len(path) and all(p in {"*", part} for p, part in zip(pattern, path, strict=True)):
                methods = found
                request.parts = [part for p, part in zip(pattern, path, strict=True) if p == "*"]
                break
    if methods is None:
        raise not_found()
    method = "GET" if request.method == "HEAD" else request.method
    if method not in methods:
        raise RegistryError(405, "HTTP 405 Method Not Allowed")
    return methods[method]


def role_for(method: str, path: str) -> str:
    """Who may (`ottla.security.web`): readers look up and check, writers register, admins delete and configure."""
    if method in {"GET", "HEAD"}:
        return "read"
    if method != "POST":
        return "admin"
    parts = path.strip("/").split("/")
    return "write" if parts[-1:] == ["versions"] and "compatibility" not in parts[:-3] else "read"
