"""/schemas: by id and guid, with the subjects and versions that have them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ottla.registry.errors import RegistryError, not_found, schema_not_found
from ottla.registry.http.answers import Request, RestResponse, answer
from ottla.registry.http.subjects import text_of
from ottla.registry.queries import page, shown
from ottla.registry.records import SCHEMA_TYPES, JsonObject, SchemaValue
from ottla.registry.service import Registry
from ottla.registry.state import guid_of
from ottla.registry.subjects import context_of, in_context, normal, qualified

_MAX_LISTED = 1000
_MAX_LISTED_BYTES = 64 << 20
_SLICE_BYTES = 1 << 20


def _id_of(request: Request) -> int:
    text = request.parts[0]
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise not_found()
    return int(text)


def _subject_of(request: Request) -> str | None:
    subject = request.query.get("subject")
    if request.context is not None:
        return in_context(request.context, subject or "")
    return normal(subject) if subject else None


async def _string(registry: Registry, request: Request, value: SchemaValue) -> JsonObject:
    document: JsonObject = {"schema": await text_of(registry, request, value), "guid": guid_of(value)}
    document |= value.optional_fields()
    if request.flag("fetchMaxId"):
        document["maxId"] = registry.state.context(context_of(value.subject)).max_id
    return document


def _by_id(registry: Registry, request: Request) -> SchemaValue:
    value = registry.queries.by_id(_id_of(request), _subject_of(request))
    return _visible(registry, request, value)


def _visible(registry: Registry, request: Request, value: SchemaValue) -> SchemaValue:
    """A schema may be registered under several subjects; the user must see at least one of these subjects."""
    if request.sees(value.subject):
        return value
    holders = registry.queries.holders(value.id, value.subject, deleted=True)
    if not any(request.sees(holder.subject) for holder in holders):
        requested_id = request.parts[0]  # the error of a missing schema, which does not reveal ids of other subjects
        raise schema_not_found(requested_id)
    return value


async def list_schemas(registry: Registry, request: Request) -> RestResponse:
    prefix = request.query.get("subjectPrefix", ":*:" if request.context is None else qualified(request.context, ""))
    deleted = request.flag("deleted")
    listed_schemas: list[SchemaValue] = []
    for subject in filter(request.sees, registry.queries.subjects(prefix, deleted=deleted)):
        values = registry.state.versions(subject, deleted=deleted)
        listed_schemas += values[-1:] if request.flag("latestOnly") else values
    limit = request.number("limit", -1)
    limit = min(limit, _MAX_LISTED) if limit >= 0 else _MAX_LISTED
    return await _listed(page(listed_schemas, request.number("offset", 0), limit))


async def _listed(values: Sequence[SchemaValue]) -> RestResponse:
    """In slices: a thousand schemas may have a gigabyte, and the loop would stop while they are encoded."""
    pieces: list[bytes] = []
    size = taken = 0
    for value in values:
        piece = msgspec.json.encode(shown(value))
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_LISTED_BYTES:
            text = f"The schemas have more than {_MAX_LISTED_BYTES} bytes: use limit and offset, subjectPrefix or latestOnly"
            raise RegistryError(413, text)
        if size - taken > _SLICE_BYTES:
            taken = size
            await asyncio.sleep(0)
    return RestResponse(b"[" + b",".join(pieces) + b"]")


async def types(_: Registry, __: Request) -> RestResponse:
    return answer(SCHEMA_TYPES)


async def by_id(registry: Registry, request: Request) -> RestResponse:
    return answer(await _string(registry, request, _by_id(registry, request)))


async def schema_by_id(registry: Registry, request: Request) -> RestResponse:
    value = _by_id(registry, request)
    return RestResponse((await text_of(registry, request, value)).encode())


async def subjects_by_id(registry: Registry, request: Request) -> RestResponse:
    _by_id(registry, request)
    holders = registry.queries.holders(_id_of(request), _subject_of(request), deleted=request.flag("deleted"))
    subjects = sorted({value.subject for value in holders if request.sees(value.subject)})
    return answer(page(subjects, request.number("offset", 0), request.number("limit", -1)))


async def versions_by_id(registry: Registry, request: Request) -> RestResponse:
    _by_id(registry, request)
    holders = registry.queries.holders(_id_of(request), _subject_of(request), deleted=request.flag("deleted"))
    subject_versions = [
        {"subject": value.subject, "version": value.version} for value in holders if request.sees(value.subject)
    ]
    return answer(page(subject_versions, request.number("offset", 0), request.number("limit", -1)))


async def by_guid(registry: Registry, request: Request) -> RestResponse:
    value = _visible(registry, request, registry.queries.by_guid(request.parts[0]))
    return answer(await _string(registry, request, value))


async def ids_by_guid(registry: Registry, request: Request) -> RestResponse:
    value = _visible(registry, request, registry.queries.by_guid(request.parts[0]))
    return answer([{"context": context_of(value.subject), "id": value.id}])
