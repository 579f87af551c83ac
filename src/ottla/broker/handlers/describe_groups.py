"""DescribeGroups: classic groups with their members."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
from ottla.protocol.generated.describe_groups_response import DescribedGroup, DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane

GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: all, where there are no ACLs."""
_AUTHORIZED_OPERATIONS_FROM = 3


def handle(
    context: RequestContext[GroupPlane], request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Deferred[DescribeGroupsResponse]:
    groups = context.broker.groups
    with_operations = request.include_authorized_operations and context.version >= _AUTHORIZED_OPERATIONS_FROM

    def finish(answers: list[DescribedGroup | KafkaError]) -> DescribeGroupsResponse:
        described = [_described(name, answer) for name, answer in zip(paced(request.groups), answers, strict=True)]
        for group in paced(described):
            if with_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=described)

    return ask_all([partial(groups.describe_group, context.version, name) for name in paced(request.groups)], finish)


def _described(group_id: str, answer: DescribedGroup | KafkaError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=answer.code) if isinstance(answer, KafkaError) else answer
