"""ShareGroupDescribe: share groups with their members and what they read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_descriptions import all_refused, describe_all, hide_members, may_describe
from ottla.broker.handlers.share_group_heartbeat import serves_share_groups
from ottla.coordinator.decisions import Waiter
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.share_group_describe_request import ShareGroupDescribeRequest
from ottla.protocol.generated.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse | Deferred[ShareGroupDescribeResponse]:
    if not serves_share_groups(context):
        return ShareGroupDescribeResponse(groups=all_refused(request, DescribedGroup))
    return describe_all(context, request, partial(_ask, context), DescribedGroup, _response, _hide)


def _response(groups: list[DescribedGroup]) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=groups)


def _ask(context: RequestContext[GroupPlane], group_id: str) -> Callable[[Waiter], None]:
    if not group_id:
        return lambda waiter: waiter(KafkaError(ErrorCode.INVALID_GROUP_ID))
    return partial(context.broker.groups.share.describe, group_id)


def _hide(context: RequestContext[GroupPlane], group: DescribedGroup) -> None:
    topics = {partitions.topic_name for member in group.members for partitions in member.assignment.topic_partitions}
    if not may_describe(context, topics):
        hide_members(group)
