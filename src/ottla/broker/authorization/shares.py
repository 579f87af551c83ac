"""Refusals of share groups' requests whose code stands with each partition or group, and not at the top."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ottla.broker.authorization.refusals import refuse
from ottla.broker.authorization.rules import ResponseT, Rule, then
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane
    from ottla.protocol.generated.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
    from ottla.protocol.generated.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
    from ottla.protocol.generated.delete_share_group_state_request import DeleteShareGroupStateRequest
    from ottla.protocol.generated.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequest
    from ottla.protocol.generated.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
    from ottla.protocol.generated.initialize_share_group_state_request import InitializeShareGroupStateRequest
    from ottla.protocol.generated.read_share_group_state_request import ReadShareGroupStateRequest
    from ottla.protocol.generated.read_share_group_state_summary_request import ReadShareGroupStateSummaryRequest
    from ottla.protocol.generated.share_acknowledge_request import ShareAcknowledgeRequest
    from ottla.protocol.generated.share_fetch_request import ShareFetchRequest
    from ottla.protocol.generated.write_share_group_state_request import WriteShareGroupStateRequest
    from ottla.protocol.primitives import Message

ShareRequestT = TypeVar(
    "ShareRequestT",
    "ShareFetchRequest",
    "ShareAcknowledgeRequest",
    "AlterShareGroupOffsetsRequest",
    "DeleteShareGroupOffsetsRequest",
)
ShareGroupStateRequest: TypeAlias = (
    "InitializeShareGroupStateRequest | ReadShareGroupStateRequest | WriteShareGroupStateRequest"
    " | DeleteShareGroupStateRequest | ReadShareGroupStateSummaryRequest"
)


def _with_message(operation: int) -> Rule:
    """A rule on the group; the refusal carries an error message too."""

    def rule(
        context: RequestContext[NodePlane], request: ShareRequestT, handle: Handle[ShareRequestT, ResponseT]
    ) -> Answer[ResponseT]:
        if context.allowed(operation, Resource.GROUP, request.group_id or ""):
            return handle(context, request)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        response = refuse(request, code)
        response.error_message = code.message
        refusal: ResponseT = response
        return refusal

    return rule


def describe_offsets(
    context: RequestContext[NodePlane],
    request: DescribeShareGroupOffsetsRequest,
    handle: Handle[DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse],
) -> Answer[DescribeShareGroupOffsetsResponse]:
    """DESCRIBE on each group; topics are the handler's own."""
    from ottla.protocol.generated.describe_share_group_offsets_response import (
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
    )

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    allowed = [group for group in request.groups if context.allowed(Operation.DESCRIBE, Resource.GROUP, group.group_id)]
    denied = [
        DescribeShareGroupOffsetsResponseGroup(group.group_id, error_code=code)
        for group in request.groups
        if group not in allowed
    ]
    if not allowed:
        return DescribeShareGroupOffsetsResponse(groups=denied)
    request.groups = allowed

    def finish(response: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
        response.groups = [*response.groups, *denied]
        return response

    return then(handle(context, request), finish)


def refused_state(request: ShareGroupStateRequest, code: int) -> Message:
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
    response: Message = getattr(module, type(request).__name__.replace("Request", "Response"))(results=results)
    return response


share_fetch = share_acknowledge = alter_share_group_offsets = _with_message(Operation.READ)
delete_share_group_offsets = _with_message(Operation.DELETE)
