"""/subjects: versions registered, looked up, listed and deleted."""

from __future__ import annotations

from ottla.registry.decisions import DeleteSubject, DeleteVersion, Register, RegisterRequest, read
from ottla.registry.errors import invalid_schema, schema_not_found, schema_too_large, subject_not_found
from ottla.registry.http.answers import Request, RestResponse, answer
from ottla.registry.queries import metadata_property, page, shown
from ottla.registry.records import SchemaValue
from ottla.registry.service import Registry
from ottla.registry.state import guid_of
from ottla.registry.subjects import in_context, normal, qualified


def subject_of(request: Request) -> str:
    return in_context(request.context, request.parts[0]) if request.context else normal(request.parts[0])


def body_of(registry: Registry, request: Request) -> RegisterRequest:
    body = request.decode(RegisterRequest)
    if body.schema is None:
        raise invalid_schema("Empty schema", body.schema_type or "AVRO")
    size, limit = len(body.schema.encode()), registry.settings.schema_max_bytes
    if size > limit:
        raise schema_too_large(size, limit)
    return body


async def text_of(registry: Registry, request: Request, value: SchemaValue) -> str:
    """The schema in the format that is asked for."""
    if request.query.get("format") != "serialized":
        return value.schema
    work, source = registry.work(request.client), registry.queries.catalogue.stored(value)
    return await work.answer(lambda: work.text(source, "serialized"))


async def list_subjects(registry: Registry, request: Request) -> RestResponse:
    default = "" if request.context is None else qualified(request.context, "")
    prefix = request.query.get("subjectPrefix", default)
    listed_subjects = registry.queries.subjects(
        prefix, deleted=request.flag("deleted"), deleted_only=request.flag("deletedOnly")
    )
    listed_subjects = [subject for subject in listed_subjects if request.sees(subject)]
    return answer(page(listed_subjects, request.number("offset", 0), request.number("limit", -1)))


async def look_up(registry: Registry, request: Request) -> RestResponse:
    subject, body = subject_of(request), body_of(registry, request)
    if not registry.state.versions(subject, deleted=request.flag("deleted")):
        raise subject_not_found(subject)
    work, deleted = registry.work(request.client), request.flag("deleted")

    def ask() -> SchemaValue:
        normalize = request.flag("normalize")
        source, text = read(registry.queries, work, subject, body, normalize=normalize, deleted=True)
        return registry.queries.look_up(subject, source.schema_type, text, body, deleted=deleted)

    value = await work.answer(ask)
    return answer(shown(value, schema=await text_of(registry, request, value)))


async def register(registry: Registry, request: Request) -> RestResponse:
    subject, body = subject_of(request), body_of(registry, request)
    decision = Register(subject, body, registry.work(request.client), normalize=request.flag("normalize"))
    value = await registry.writer.carry_out(decision)
    return answer({"id": value.id, "version": value.version, "guid": guid_of(value)})


async def list_versions(registry: Registry, request: Request) -> RestResponse:
    deleted, only = request.flag("deleted"), request.flag("deletedOnly")
    versions = registry.queries.versions(subject_of(request), deleted=deleted, deleted_only=only)
    return answer(page(versions, request.number("offset", 0), request.number("limit", -1)))


async def get_version(registry: Registry, request: Request) -> RestResponse:
    value = registry.queries.version(subject_of(request), request.parts[1], deleted=request.flag("deleted"))
    return answer(shown(value, schema=await text_of(registry, request, value)))


async def get_schema(registry: Registry, request: Request) -> RestResponse:
    value = registry.queries.version(subject_of(request), request.parts[1], deleted=request.flag("deleted"))
    return RestResponse((await text_of(registry, request, value)).encode())


async def referenced_by(registry: Registry, request: Request) -> RestResponse:
    value = registry.queries.version(subject_of(request), request.parts[1], deleted=True)
    referrers = registry.queries.referenced_by(value.subject, value.version, deleted=request.flag("deleted"))
    ids = sorted({referrer.id for referrer in referrers if request.sees(referrer.subject)})
    return answer(page(ids, request.number("offset", 0), request.number("limit", -1)))


async def latest_with_metadata(registry: Registry, request: Request) -> RestResponse:
    """?key=K&value=V: the newest version whose metadata has that property."""
    subject = subject_of(request)
    key, property_value = request.query.get("key"), request.query.get("value")
    values = registry.state.versions(subject, deleted=request.flag("deleted"))
    if not values:
        raise subject_not_found(subject)
    for value in reversed(values):
        if key is None or metadata_property(value.metadata, key) == property_value:
            return answer(shown(value, schema=await text_of(registry, request, value)))
    raise schema_not_found()


async def delete_subject(registry: Registry, request: Request) -> RestResponse:
    return answer(
        await registry.writer.carry_out(DeleteSubject(subject_of(request), permanent=request.flag("permanent")))
    )


async def delete_version(registry: Registry, request: Request) -> RestResponse:
    decision = DeleteVersion(subject_of(request), request.parts[1], permanent=request.flag("permanent"))
    return answer(await registry.writer.carry_out(decision))
