"""StreamsGroupDescribe: applications of Kafka Streams with their topology and members, what these have and should have."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.broker.handlers.streams_group_heartbeat import serves_streams_protocol
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.streams_group_describe_request import StreamsGroupDescribeRequest
from ottla.protocol.generated.streams_group_describe_response import DescribedGroup, StreamsGroupDescribeResponse
from ottla.security.acls import Operation, Resource


def handle(context: RequestContext, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse | Deferred:
    if not serves_streams_protocol(context):
        code = ErrorCode.UNSUPPORTED_VERSION
        groups = [DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
        return StreamsGroupDescribeResponse(groups=groups)

    def finish(answers: list[Any]) -> StreamsGroupDescribeResponse:
        described = [_described(*pair) for pair in zip(request.group_ids, answers, strict=True)]
        for group in described:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
            if context.broker.authorizer is not None:
                _hide(context, group)
        return StreamsGroupDescribeResponse(groups=described)

    describe = context.broker.groups.describe_streams_group
    return ask_all([partial(describe, group_id) for group_id in request.group_ids], finish)


def _described(group_id: str, answer: DescribedGroup | KafkaError) -> DescribedGroup:
    if not isinstance(answer, KafkaError):
        return answer
    message = answer.message if answer.code is ErrorCode.GROUP_ID_NOT_FOUND else None
    return DescribedGroup(group_id=group_id, error_code=answer.code, error_message=message)


def _hide(context: RequestContext, group: DescribedGroup) -> None:
    """A group whose topology names a topic which the client may not describe is not shown at all."""
    names: set[str] = set()
    for each in (group.topology.subtopologies or ()) if group.topology is not None else ():
        names.update(each.source_topics, each.repartition_sink_topics)
        names.update(topic.name for topic in (*each.repartition_source_topics, *each.state_changelog_topics))
    if not all(context.allowed(Operation.DESCRIBE, Resource.TOPIC, name) for name in names):
        group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        group.error_message = "The described group uses topics that the client is not authorized to describe."
        group.group_state, group.group_epoch, group.assignment_epoch = "", 0, 0
        group.members, group.topology = [], None
