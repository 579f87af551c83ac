"""/config, /mode, /compatibility, /contexts and the instance's description of itself."""

from __future__ import annotations

from typing import Any

import msgspec

from ottla import __version__
from ottla.registry.compatibility import CompatibilityFinding, level_named, shown
from ottla.registry.decisions import MergeConfig, SetConfig, SetMode, read
from ottla.registry.errors import RegistryError, association_not_found, invalid_mode, subject_not_found
from ottla.registry.http.answers import Request, RestResponse, answer
from ottla.registry.http.subjects import body_of, subject_of
from ottla.registry.queries import page
from ottla.registry.service import Registry
from ottla.registry.state import GLOBAL
from ottla.registry.subjects import context_name

_KEPT = (
    "alias", "normalize", "validateFields", "validateRules", "compatibilityPolicy", "compatibilityGroup",
    "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet",
)  # fmt: skip


class _ModeBody(msgspec.Struct):
    mode: Any = None


def _subject(request: Request) -> str:
    if request.parts:
        return subject_of(request)
    return GLOBAL if request.context is None else f":{context_name(request.context)}:"


async def get_config(registry: Registry, request: Request) -> RestResponse:
    subject = _subject(request)
    return answer(registry.queries.config(subject, inherited=subject == GLOBAL or request.flag("defaultToGlobal")))


async def put_config(registry: Registry, request: Request) -> RestResponse:
    body = request.decode(dict[str, Any])
    config = {name: body[name] for name in _KEPT if body.get(name) is not None}
    level = body.get("compatibility", body.get("compatibilityLevel"))
    if level is not None or not config:
        config["compatibilityLevel"] = level_named(level)
    await registry.writer.carry_out(MergeConfig(_subject(request), config))
    if "compatibilityLevel" in config:
        config = {"compatibility": config.pop("compatibilityLevel"), **config}
    return answer(config)


async def delete_config(registry: Registry, request: Request) -> RestResponse:
    subject = _subject(request)
    try:
        return answer(await registry.writer.carry_out(SetConfig(subject, None)))
    except RegistryError as error:
        raise (subject_not_found(subject) if error.code == 40408 else error) from error


async def get_mode(registry: Registry, request: Request) -> RestResponse:
    subject = _subject(request)
    inherited = subject == GLOBAL or request.flag("defaultToGlobal")
    return answer({"mode": registry.queries.mode(subject, inherited=inherited)})


async def put_mode(registry: Registry, request: Request) -> RestResponse:
    mode = request.decode(_ModeBody).mode
    if not isinstance(mode, str):
        raise invalid_mode()
    decision = SetMode(_subject(request), mode.upper(), force=request.flag("force"))
    return answer({"mode": await registry.writer.carry_out(decision)})


async def delete_mode(registry: Registry, request: Request) -> RestResponse:
    subject = _subject(request)
    try:
        return answer({"mode": await registry.writer.carry_out(SetMode(subject, None, force=False))})
    except RegistryError as error:
        raise (subject_not_found(subject) if error.code == 40409 else error) from error


async def check_version(registry: Registry, request: Request) -> RestResponse:
    return await _check(registry, request, request.parts[1])


async def check_all(registry: Registry, request: Request) -> RestResponse:
    return await _check(registry, request, None)


async def _check(registry: Registry, request: Request, version: str | None) -> RestResponse:
    subject, body = subject_of(request), body_of(registry, request)
    work = registry.work(request.client)
    if version in {"latest", "-1"} and not registry.state.versions(subject):
        # Nothing to be incompatible with.
        version = None

    def ask() -> tuple[str, list[CompatibilityFinding]]:
        source, _ = read(registry.queries, work, subject, body, normalize=request.flag("normalize"))
        return registry.queries.findings(work, subject, source, body.metadata, only=version)

    level, findings = await work.answer(ask)
    response: dict[str, Any] = {"is_compatible": not findings}
    if request.flag("verbose"):
        response["messages"] = shown(findings, level)
    return answer(response)


async def contexts(registry: Registry, request: Request) -> RestResponse:
    listed_contexts = registry.queries.contexts(request.sees)
    return answer(page(listed_contexts, request.number("offset", 0), request.number("limit", -1)))


async def root(_: Registry, __: Request) -> RestResponse:
    return answer({})


async def metadata_id(registry: Registry, _: Request) -> RestResponse:
    return answer({"scope": {"path": [], "clusters": {"schema-registry-cluster": registry.settings.group_id}}})


async def metadata_version(_: Registry, __: Request) -> RestResponse:
    return answer({"version": __version__, "commitId": ""})


async def association(_: Registry, request: Request) -> RestResponse:
    """There are none: new serializers ask first and fall back on a 404."""
    raise association_not_found(request.path[-1] if len(request.path) > 1 else "")
