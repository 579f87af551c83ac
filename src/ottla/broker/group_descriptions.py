"""ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe: what their handlers have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.coordinator.decisions import Waiter
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane
    from ottla.protocol.generated import consumer_group_describe_response as consumer_group
    from ottla.protocol.generated import share_group_describe_response as share_group
    from ottla.protocol.generated import streams_group_describe_response as streams_group
    from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
    from ottla.protocol.generated.share_group_describe_request import ShareGroupDescribeRequest
    from ottla.protocol.generated.streams_group_describe_request import StreamsGroupDescribeRequest

DescribeRequest: TypeAlias = "ConsumerGroupDescribeRequest | ShareGroupDescribeRequest | StreamsGroupDescribeRequest"
GroupT = TypeVar(
    "GroupT", "consumer_group.DescribedGroup", "share_group.DescribedGroup", "streams_group.DescribedGroup"
)
ResponseT = TypeVar("ResponseT")


def describe_all(
    context: RequestContext[GroupPlane],
    request: DescribeRequest,
    ask: Callable[[str], Callable[[Waiter], None]],
    group_class: Callable[..., GroupT],
    respond: Callable[[list[GroupT]], ResponseT],
    hide: Callable[[RequestContext[GroupPlane], GroupT], None],
) -> ResponseT | Deferred[ResponseT]:
    """Each group of the request, or the error in its place; `hide` takes out what the client may not see."""

    def finish(answers: list[GroupT | KafkaError]) -> ResponseT:
        described = [_described(group_class, *pair) for pair in zip(paced(request.group_ids), answers, strict=True)]
        for group in paced(described, 3):
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
            if context.broker.authorizer is not None:
                hide(context, group)
        return respond(described)

    return ask_all([ask(group_id) for group_id in paced(request.group_ids)], finish)


def all_refused(request: DescribeRequest, group_class: Callable[..., GroupT]) -> list[GroupT]:
    """The protocol is switched off here."""
    code = ErrorCode.UNSUPPORTED_VERSION
    return [group_class(group_id=group_id, error_code=code) for group_id in paced(request.group_ids)]


def may_describe(context: RequestContext[GroupPlane], topics: Iterable[str]) -> bool:
    return all(context.allowed(Operation.DESCRIBE, Resource.TOPIC, name) for name in topics)


def hide_members(group: GroupT) -> None:
    """A group that reads a topic which the client may not describe is not shown at all."""
    group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    group.error_message = "The group has described topic(s) that the client is not authorized to describe."
    group.members = []


def _described(group_class: Callable[..., GroupT], group_id: str, answer: GroupT | KafkaError) -> GroupT:
    if not isinstance(answer, KafkaError):
        return answer
    message = answer.message if answer.code is ErrorCode.GROUP_ID_NOT_FOUND else None
    return group_class(group_id=group_id, error_code=answer.code, error_message=message)
