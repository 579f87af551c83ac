"""ConsumerGroupDescribe: groups of the consumer protocol with their members, what they have and should have."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.broker.handlers.consumer_group_heartbeat import serves_consumer_protocol
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.protocol.generated.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from ottla.security.acls import Operation, Resource


def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse | Deferred:
    if not serves_consumer_protocol(context):
        code = ErrorCode.UNSUPPORTED_VERSION
        groups = [DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)

    def finish(answers: list[Any]) -> ConsumerGroupDescribeResponse:
        described = [_described(*pair) for pair in zip(request.group_ids, answers, strict=True)]
        for group in described:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
            if context.broker.authorizer is not None:
                _hide(context, group)
        return ConsumerGroupDescribeResponse(groups=described)

    describe = context.broker.groups.describe_consumer_group
    return ask_all([partial(describe, group_id) for group_id in request.group_ids], finish)


def _described(group_id: str, answer: DescribedGroup | KafkaError) -> DescribedGroup:
    if not isinstance(answer, KafkaError):
        return answer
    message = answer.message if answer.code is ErrorCode.GROUP_ID_NOT_FOUND else None
    return DescribedGroup(group_id=group_id, error_code=answer.code, error_message=message)


def _hide(context: RequestContext, group: DescribedGroup) -> None:
    """A group that reads a topic which the client may not describe is not shown at all."""
    topics = {name for member in group.members for name in member.subscribed_topic_names}
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            topics |= {each.topic_name for each in assignment.topic_partitions}
    if not all(context.allowed(Operation.DESCRIBE, Resource.TOPIC, name) for name in topics):
        group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        group.error_message = "The group has described topic(s) that the client is not authorized to describe."
        group.members = []
