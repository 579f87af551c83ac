"""The kinds of rules: for everyone, for the cluster, for one resource, for each of a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ottla.broker.authorization.refusals import refuse
from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred, Unfinished
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.api import response_class
from ottla.protocol.primitives import Message
from ottla.security.acls import CLUSTER_NAME

Handle = Callable[[RequestContext, Any], Any]
Rule = Callable[[RequestContext, Any, Handle], Any]

FAILED = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def for_everyone(context: RequestContext, request: Any, handle: Handle) -> Any:
    return handle(context, request)


def on_cluster(context: RequestContext, operation: int) -> bool:
    return context.allowed(operation, Resource.CLUSTER, CLUSTER_NAME)


def for_cluster(*operations: int) -> Rule:
    """The request passes if any of the operations is allowed on the cluster."""

    def rule(context: RequestContext, request: Any, handle: Handle) -> Any:
        if any(on_cluster(context, operation) for operation in operations):
            return handle(context, request)
        return refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    return rule


def for_one(operation: int, resource: Resource, attribute: str) -> Rule:
    """The request is about one resource, which it names in `attribute`."""

    def rule(context: RequestContext, request: Any, handle: Handle) -> Any:
        if context.allowed(operation, resource, getattr(request, attribute)):
            return handle(context, request)
        return refuse(request, FAILED[resource])

    return rule


def all_of(*rules: Rule) -> Rule:
    """One after the other; the first that refuses answers."""

    def rule(context: RequestContext, request: Any, handle: Handle) -> Any:
        for step in reversed(rules):
            handle = _step(step, handle)
        return handle(context, request)

    return rule


def _step(rule: Rule, handle: Handle) -> Handle:
    return lambda context, request: rule(context, request, handle)


def for_each(
    field: str,
    operation: int,
    resource: Resource,
    refused: Callable[[Any, int], Any],
    *,
    name: Callable[[RequestContext, Any], str | None],
    into: str,
    unless: int | None = None,
) -> Rule:
    """Each item of the list `field` for itself; `refused(item, code)` joins the response's list `into`. An item whose
    name is None is the handler's to refuse. With `unless` on the cluster, all items pass.
    """

    def rule(context: RequestContext, request: Any, handle: Handle) -> Any:
        if unless is not None and on_cluster(context, unless):
            return handle(context, request)
        allowed, denied = split(context, getattr(request, field), operation, resource, name)
        if not denied:
            return handle(context, request)
        answers = [refused(item, int(FAILED[resource])) for item in paced(denied)]
        if not allowed:
            response: Any = response_class(request.API_KEY)()
            setattr(response, into, answers)
            return response
        setattr(request, field, allowed)
        return then(handle(context, request), lambda response: _added(response, into, answers))

    return rule


def split(
    context: RequestContext,
    items: list[Any],
    operation: int,
    resource: Resource,
    name: Callable[[RequestContext, Any], str | None],
) -> tuple[list[Any], list[Any]]:
    allowed: list[Any] = []
    denied: list[Any] = []
    for item in paced(items, 3):
        found = name(context, item)
        ok = found is None or context.allowed(operation, resource, found)
        (allowed if ok else denied).append(item)
    return allowed, denied


def _added(response: Any, into: str, answers: list[Any]) -> Any:
    setattr(response, into, [*getattr(response, into), *answers])
    return response


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """`change` applied to a handler's answer, whether it is there, deferred or awaited."""
    if answer is None:
        return None
    if isinstance(answer, Message):
        return change(answer)
    if isinstance(answer, Deferred):
        chained = Deferred(answer.cancel)
        answer.then(lambda response: chained.resolve(_changed(response, change)))
        return chained
    return _awaited(answer, change)


async def _awaited(answer: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    return _changed(await answer, change)


def _changed(response: Any, change: Callable[[Any], Any]) -> Any:
    if response is None:
        return None
    if isinstance(response, Unfinished):
        return Unfinished(lambda: change(response.finish()))
    return change(response)


# What an item of a request is called


def by_name(_context: RequestContext, item: Any) -> str | None:
    found: str | None = item.name
    return found


def by_topic(_context: RequestContext, item: Any) -> str | None:
    found: str | None = item.topic
    return found


def itself(_context: RequestContext, item: str) -> str | None:
    return item
