"""Schemas of the registry: subjects, versions, what changed between them, and whether a new one would be accepted."""

from __future__ import annotations

import difflib
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.errors import ConsoleError
from ottla.console.render import path_part
from ottla.console.site import site_of
from ottla.console.web import back, form, number, page_response, text
from ottla.security.grants import SUBJECT

LEVELS = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")
TYPES = ("AVRO", "JSON", "PROTOBUF")


async def show(request: Request) -> Response:
    site = site_of(request)
    subjects: list[str] | None = None
    level, reason = "", ""
    try:
        registered = await site.gateway.in_thread(site.registry.subjects)
        subjects = [subject for subject in registered if site.user.rights.sees(SUBJECT, subject)]
        level = (await site.gateway.in_thread(lambda: site.registry.call("GET", "config")))["compatibilityLevel"]
    except ConsoleError as error:
        reason = error.message
    return page_response(
        request, "schemas.html", "schemas", subjects=subjects, level=level, reason=reason, registry=site.registry.url,
        types=TYPES,
    )  # fmt: skip


async def show_subject(request: Request) -> Response:
    site, subject = site_of(request), request.path_params["subject"]
    site.access.require(request, "viewer", SUBJECT, subject)
    chosen, against = (_version(request, name) for name in ("version", "against"))

    def load() -> dict[str, Any]:
        versions = site.registry.versions(subject)
        shown = site.registry.version(subject, chosen or versions[-1])
        older = [version for version in versions if version < shown["version"]]
        before = site.registry.version(subject, against or older[-1]) if older or against else None
        try:
            level = site.registry.call("GET", "config", subject, query={"defaultToGlobal": "true"})[
                "compatibilityLevel"
            ]
        except ConsoleError:
            level = ""
        return {"versions": versions, "shown": shown, "before": before, "level": level}

    context = await site.gateway.in_thread(load)
    shown, before = context["shown"], context["before"]
    lines = difference(before, shown) if before is not None else []
    return page_response(
        request, "schema.html", "schemas", subject=subject, **context, text=readable(shown), lines=lines,
        levels=LEVELS, verdict=None, tried="",
    )  # fmt: skip


def _version(request: Request, name: str) -> int | str:
    """The version in the page's address, or "". It becomes part of a registry address: only numbers and latest pass."""
    version_text = request.query_params.get(name, "")
    return version_text if version_text in ("", "latest") else number(version_text, "Version")


def readable(schema: dict[str, Any]) -> str:
    if schema.get("schemaType", "AVRO") == "PROTOBUF":
        return str(schema["schema"])
    try:
        return json.dumps(json.loads(schema["schema"]), indent=2, ensure_ascii=False)
    except ValueError:
        return str(schema["schema"])


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    """Lines with what became of them: add, del, same."""
    marks = {"+ ": "add", "- ": "del", "  ": "same"}
    compared = difflib.ndiff(readable(before).splitlines(), readable(after).splitlines())
    return [(marks[line[:2]], line) for line in compared if line[:2] in marks]


async def check(request: Request) -> Response:
    """Would the registry take this as the next version? Changes nothing; registers only when asked to."""
    form_data = await form(request)
    site, subject = site_of(request), request.path_params["subject"]
    body: dict[str, Any] = {"schema": text(form_data, "schema"), "schemaType": text(form_data, "type") or "AVRO"}
    if text(form_data, "register") == "yes":
        schema_id = await site.gateway.in_thread(lambda: site.registry.register(subject, body))
        return back(f"/schemas/{path_part(subject)}", f"Registered with id {schema_id}.")
    answer = await site.gateway.in_thread(
        lambda: site.registry.call(
            "POST", "compatibility", "subjects", subject, "versions", "latest", body=body, query={"verbose": "true"}
        )
    )
    return page_response(
        request,
        "schema_check.html",
        "schemas",
        subject=subject,
        verdict=answer,
        tried=body["schema"],
        type=body["schemaType"],
    )


async def create(request: Request) -> Response:
    form_data = await form(request, anywhere=True)
    site, subject = site_of(request), text(form_data, "subject").strip()
    site.access.require(request, "operator", SUBJECT, subject)
    if not subject:
        raise ConsoleError("A schema needs a subject, such as orders-value.")
    body = {"schema": text(form_data, "schema"), "schemaType": text(form_data, "type") or "AVRO"}
    schema_id = await site.gateway.in_thread(lambda: site.registry.register(subject, body))
    return back(f"/schemas/{path_part(subject)}", f"Registered with id {schema_id}.")


async def set_level(request: Request) -> Response:
    form_data = await form(request, "admin")
    site, subject, level = site_of(request), request.path_params["subject"], text(form_data, "level")
    if level not in LEVELS:
        raise ConsoleError(f"{level!r} is not a compatibility level")
    await site.gateway.in_thread(lambda: site.registry.call("PUT", "config", subject, body={"compatibility": level}))
    return back(f"/schemas/{path_part(subject)}", f"New versions must be {level}.")


async def delete(request: Request) -> Response:
    form_data = await form(request, "admin")
    site, subject = site_of(request), request.path_params["subject"]
    if text(form_data, "confirm") != subject:
        raise ConsoleError(f"To be safe, write the subject's name, {subject}, and try again. Nothing was changed.")
    await site.gateway.in_thread(lambda: site.registry.call("DELETE", "subjects", subject))
    return back("/schemas", f"{subject} is deleted; the registry can still restore it.")


ROUTES = [
    Route("/schemas", show),
    Route("/schemas", create, methods=["POST"]),
    Route("/schemas/{subject:path}/check", check, methods=["POST"]),
    Route("/schemas/{subject:path}/level", set_level, methods=["POST"]),
    Route("/schemas/{subject:path}/delete", delete, methods=["POST"]),
    Route("/schemas/{subject:path}", show_subject),
]
