"""StreamsGroupDescribe: applications of Kafka Streams with their topology and members, what these have and should have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_descriptions import all_refused, describe_all, may_describe
from ottla.broker.handlers.streams_group_heartbeat import serves_streams_protocol
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.streams_group_describe_request import StreamsGroupDescribeRequest
from ottla.protocol.generated.streams_group_describe_response import DescribedGroup, StreamsGroupDescribeResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse | Deferred[StreamsGroupDescribeResponse]:
    if not serves_streams_protocol(context):
        return StreamsGroupDescribeResponse(groups=all_refused(request, DescribedGroup))
    ask = partial(partial, context.broker.groups.describe_streams_group)
    return describe_all(context, request, ask, DescribedGroup, _response, _hide)


def _response(groups: list[DescribedGroup]) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(groups=groups)


def _hide(context: RequestContext[GroupPlane], group: DescribedGroup) -> None:
    """A group whose topology names a topic which the client may not describe is not shown at all."""
    names: set[str] = set()
    for subtopology in (group.topology.subtopologies or ()) if group.topology is not None else ():
        names.update(subtopology.source_topics, subtopology.repartition_sink_topics)
        names.update(
            topic.name for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
        )
    if not may_describe(context, names):
        group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        group.error_message = "The described group uses topics that the client is not authorized to describe."
        group.group_state, group.group_epoch, group.assignment_epoch = "", 0, 0
        group.members, group.topology = [], None
