"""Refusals of share groups' requests whose code stands with each partition or group, and not at the top."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ottla.broker.authorization.refusals import refuse
from ottla.broker.authorization.rules import Handle, Rule, then
from ottla.broker.context import RequestContext
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode


def _with_message(operation: int) -> Rule:
    """A rule on the group; the refusal carries an error message too."""

    def rule(context: RequestContext, request: Any, handle: Handle) -> Any:
        if context.allowed(operation, Resource.GROUP, request.group_id or ""):
            return handle(context, request)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        response = refuse(request, code)
        response.error_message = code.message
        return response

    return rule


def describe_offsets(context: RequestContext, request: Any, handle: Handle) -> Any:
    """DESCRIBE on each group; topics are the handler's own."""
    from ottla.protocol.generated.describe_share_group_offsets_response import (
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
    )

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    allowed = [each for each in request.groups if context.allowed(Operation.DESCRIBE, Resource.GROUP, each.group_id)]
    denied = [
        DescribeShareGroupOffsetsResponseGroup(each.group_id, error_code=code)
        for each in request.groups
        if each not in allowed
    ]
    if not allowed:
        return DescribeShareGroupOffsetsResponse(groups=denied)
    request.groups = allowed

    def finish(response: Any) -> Any:
        response.groups = [*response.groups, *denied]
        return response

    return then(handle(context, request), finish)


def refused_state(request: Any, code: int) -> Any:
    """One of the five requests about share-partitions' state (83 to 87)."""
    name = type(request).__name__.removesuffix("ShareGroupStateRequest").removesuffix("ShareGroupStateSummaryRequest")
    summary = "summary" if type(request).__name__.endswith("SummaryRequest") else ""
    module = import_module(
        f"ottla.protocol.generated.{name.lower()}_share_group_state{'_summary' if summary else ''}_response"
    )
    topic_result = getattr(module, f"{name}State{summary.capitalize()}Result")
    results = [
        topic_result(
            topic.topic_id,
            [module.PartitionResult(row.partition, code, ErrorCode(code).message) for row in topic.partitions],
        )
        for topic in request.topics
    ]
    response = getattr(module, type(request).__name__.replace("Request", "Response"))
    return response(results=results)


share_fetch = share_acknowledge = alter_share_group_offsets = _with_message(Operation.READ)
delete_share_group_offsets = _with_message(Operation.DELETE)
