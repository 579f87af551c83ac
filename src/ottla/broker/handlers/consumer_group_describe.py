"""ConsumerGroupDescribe: groups of the consumer protocol with their members, what they have and should have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_descriptions import all_refused, describe_all, hide_members, may_describe
from ottla.broker.handlers.consumer_group_heartbeat import serves_consumer_protocol
from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.protocol.generated.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Deferred[ConsumerGroupDescribeResponse]:
    if not serves_consumer_protocol(context):
        return ConsumerGroupDescribeResponse(groups=all_refused(request, DescribedGroup))
    ask = partial(partial, context.broker.groups.describe_consumer_group)
    return describe_all(context, request, ask, DescribedGroup, _response, _hide)


def _response(groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=groups)


def _hide(context: RequestContext[GroupPlane], group: DescribedGroup) -> None:
    topics = {name for member in group.members for name in member.subscribed_topic_names}
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            topics |= {partitions.topic_name for partitions in assignment.topic_partitions}
    if not may_describe(context, topics):
        hide_members(group)
