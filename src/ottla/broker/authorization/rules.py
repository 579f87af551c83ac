"""The kinds of rules: for everyone, for the cluster, for one resource, for each of a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ottla.broker.authorization.refusals import refuse
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer, Deferred, Resolution, Unfinished
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.api import response_class
from ottla.protocol.primitives import Message, Struct
from ottla.security.acls import CLUSTER_NAME

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
ItemT = TypeVar("ItemT")
Rule: TypeAlias = "Callable[[RequestContext[NodePlane], Any, Handle[Any, Any]], Answer[Any]]"
"""A rule answers the request of its API, or passes the request on to the handler and changes the handler's answer."""

FAILED = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def for_everyone(
    context: RequestContext[NodePlane], request: RequestT, handle: Handle[RequestT, ResponseT]
) -> Answer[ResponseT]:
    return handle(context, request)


def on_cluster(context: RequestContext[NodePlane], operation: int) -> bool:
    return context.allowed(operation, Resource.CLUSTER, CLUSTER_NAME)


def for_cluster(*operations: int) -> Rule:
    """The request passes if any of the operations is allowed on the cluster."""

    def rule(
        context: RequestContext[NodePlane], request: RequestT, handle: Handle[RequestT, ResponseT]
    ) -> Answer[ResponseT]:
        if any(on_cluster(context, operation) for operation in operations):
            return handle(context, request)
        refusal: ResponseT = refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refusal

    return rule


def for_one(operation: int, resource: Resource, attribute: str) -> Rule:
    """The request is about one resource, which it names in `attribute`."""

    def rule(
        context: RequestContext[NodePlane], request: RequestT, handle: Handle[RequestT, ResponseT]
    ) -> Answer[ResponseT]:
        if context.allowed(operation, resource, getattr(request, attribute)):
            return handle(context, request)
        refusal: ResponseT = refuse(request, FAILED[resource])
        return refusal

    return rule


def all_of(*rules: Rule) -> Rule:
    """One after the other; the first that refuses answers."""

    def rule(
        context: RequestContext[NodePlane], request: RequestT, handle: Handle[RequestT, ResponseT]
    ) -> Answer[ResponseT]:
        for step in reversed(rules):
            handle = _step(step, handle)
        return handle(context, request)

    return rule


def _step(rule: Rule, handle: Handle[RequestT, ResponseT]) -> Handle[RequestT, ResponseT]:
    return lambda context, request: rule(context, request, handle)


def for_each(
    field: str,
    operation: int,
    resource: Resource,
    refused: Callable[[ItemT, int], Struct],
    *,
    name: Callable[[RequestContext[NodePlane], ItemT], str | None],
    into: str,
    unless: int | None = None,
) -> Rule:
    """Each item of the list `field` for itself; `refused(item, code)` joins the response's list `into`. An item whose
    name is None is the handler's to refuse. With `unless` on the cluster, all items pass.
    """

    def rule(
        context: RequestContext[NodePlane], request: RequestT, handle: Handle[RequestT, ResponseT]
    ) -> Answer[ResponseT]:
        if unless is not None and on_cluster(context, unless):
            return handle(context, request)
        allowed, denied = split(context, getattr(request, field), operation, resource, name)
        if not denied:
            return handle(context, request)
        answers = [refused(item, int(FAILED[resource])) for item in paced(denied)]
        if not allowed:
            response: ResponseT = empty_response(request)
            return added(response, into, answers)
        setattr(request, field, allowed)
        return then(handle(context, request), lambda response: added(response, into, answers))

    return rule


def split(
    context: RequestContext[NodePlane],
    items: list[ItemT],
    operation: int,
    resource: Resource,
    name: Callable[[RequestContext[NodePlane], ItemT], str | None],
) -> tuple[list[ItemT], list[ItemT]]:
    allowed: list[ItemT] = []
    denied: list[ItemT] = []
    for item in paced(items, 3):
        resource_name = name(context, item)
        ok = resource_name is None or context.allowed(operation, resource, resource_name)
        (allowed if ok else denied).append(item)
    return allowed, denied


def empty_response(request: Message) -> Any:
    """An empty response of the request's API."""
    return response_class(request.API_KEY)()


def added(response: ResponseT, into: str, answers: list[Struct]) -> ResponseT:
    setattr(response, into, [*getattr(response, into), *answers])
    return response


def then(answer: Answer[ResponseT], change: Callable[[ResponseT], ResponseT]) -> Answer[ResponseT]:
    """`change` applied to a handler's answer, whether it is there, deferred or awaited."""
    if answer is None:
        return None
    if isinstance(answer, Message):
        return change(answer)
    if isinstance(answer, Deferred):
        chained: Deferred[ResponseT] = Deferred(answer.cancel)
        answer.then(lambda response: chained.resolve(_changed(response, change)))
        return chained
    return _awaited(answer, change)


async def _awaited(
    answer: Awaitable[Resolution[ResponseT]], change: Callable[[ResponseT], ResponseT]
) -> Resolution[ResponseT]:
    return _changed(await answer, change)


def _changed(response: Resolution[ResponseT], change: Callable[[ResponseT], ResponseT]) -> Resolution[ResponseT]:
    if response is None:
        return None
    if isinstance(response, Unfinished):
        return Unfinished(lambda: change(response.finish()))
    return change(response)


# What an item of a request is called


class Named(Protocol):
    name: str


class OfTopic(Protocol):
    topic: str


def by_name(_context: RequestContext[NodePlane], item: Named) -> str | None:
    return item.name


def by_topic(_context: RequestContext[NodePlane], item: OfTopic) -> str | None:
    return item.topic


def itself(_context: RequestContext[NodePlane], item: str) -> str | None:
    return item
