"""ShareGroupDescribe: share groups with their members and what they read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.broker.handlers.share_group_heartbeat import serves_share_groups
from ottla.coordinator.decisions import Waiter
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.share_group_describe_request import ShareGroupDescribeRequest
from ottla.protocol.generated.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse
from ottla.security.acls import Operation, Resource


def handle(context: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse | Deferred:
    if not serves_share_groups(context):
        code = ErrorCode.UNSUPPORTED_VERSION
        groups = [DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
        return ShareGroupDescribeResponse(groups=groups)

    def finish(answers: list[Any]) -> ShareGroupDescribeResponse:
        described = [_described(*pair) for pair in zip(request.group_ids, answers, strict=True)]
        for group in described:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
            if context.broker.authorizer is not None:
                _hide(context, group)
        return ShareGroupDescribeResponse(groups=described)

    return ask_all([_ask(context, group_id) for group_id in request.group_ids], finish)


def _ask(context: RequestContext, group_id: str) -> Callable[[Waiter], None]:
    if not group_id:
        return lambda waiter: waiter(KafkaError(ErrorCode.INVALID_GROUP_ID))
    return partial(context.broker.groups.share.describe, group_id)


def _described(group_id: str, answer: DescribedGroup | KafkaError) -> DescribedGroup:
    if not isinstance(answer, KafkaError):
        return answer
    message = answer.message if answer.code is ErrorCode.GROUP_ID_NOT_FOUND else None
    return DescribedGroup(group_id=group_id, error_code=answer.code, error_message=message)


def _hide(context: RequestContext, group: DescribedGroup) -> None:
    """A group that reads a topic which the client may not describe is not shown at all."""
    topics = {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
    if not all(context.allowed(Operation.DESCRIBE, Resource.TOPIC, name) for name in topics):
        group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        group.error_message = "The group has described topic(s) that the client is not authorized to describe."
        group.members = []
