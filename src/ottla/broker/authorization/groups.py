"""Rules of groups and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.authorization.refusals import offset_commit_topic, refuse
from ottla.broker.authorization.rules import (
    ResponseT,
    Rule,
    all_of,
    by_name,
    empty_response,
    for_each,
    for_one,
    itself,
    on_cluster,
    split,
    then,
)
from ottla.broker.authorization.topics import DENIED, name_of_topic
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.primitives import Message, Struct

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane
    from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from ottla.protocol.generated.delete_groups_response import DeletableGroupResult
    from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
    from ottla.protocol.generated.find_coordinator_response import FindCoordinatorResponse
    from ottla.protocol.generated.list_groups_request import ListGroupsRequest
    from ottla.protocol.generated.list_groups_response import ListGroupsResponse
    from ottla.protocol.generated.offset_delete_request import OffsetDeleteRequestTopic
    from ottla.protocol.generated.offset_delete_response import OffsetDeleteResponseTopic
    from ottla.protocol.generated.offset_fetch_request import (
        OffsetFetchRequest,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )
    from ottla.protocol.generated.offset_fetch_response import (
        OffsetFetchResponse,
        OffsetFetchResponseTopic,
        OffsetFetchResponseTopics,
    )
    from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from ottla.protocol.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest

HeartbeatRequestT = TypeVar(
    "HeartbeatRequestT", "ConsumerGroupHeartbeatRequest", "ShareGroupHeartbeatRequest", "StreamsGroupHeartbeatRequest"
)
GROUP_DENIED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_BATCHED_FROM = 4
_SEVERAL_GROUPS_FROM = 8
_GROUP_ERROR_FROM = 2


def find_coordinator(
    context: RequestContext[NodePlane],
    request: FindCoordinatorRequest,
    handle: Handle[FindCoordinatorRequest, FindCoordinatorResponse],
) -> Answer[FindCoordinatorResponse]:
    from ottla.protocol.generated.find_coordinator_response import Coordinator, FindCoordinatorResponse

    batched = context.version >= _BATCHED_FROM
    keys = request.coordinator_keys if batched else [request.key]
    codes = {key: _coordinator_code(context, request.key_type, key) for key in keys}
    allowed = [key for key in keys if codes[key] is ErrorCode.NONE]
    if not batched:
        if allowed:
            return handle(context, request)
        code = codes[request.key]
        return FindCoordinatorResponse(0, int(code), code.message, -1, "", -1)
    denied = [Coordinator(key, -1, "", -1, int(codes[key])) for key in keys if codes[key] is not ErrorCode.NONE]
    if not allowed and denied:
        return FindCoordinatorResponse(coordinators=denied)
    request.coordinator_keys = allowed

    def finish(response: FindCoordinatorResponse) -> FindCoordinatorResponse:
        response.coordinators = [*response.coordinators, *denied]
        return response

    return then(handle(context, request), finish)


def _coordinator_code(context: RequestContext[NodePlane], key_type: int, key: str) -> ErrorCode:
    if key_type == _GROUP and not context.allowed(Operation.DESCRIBE, Resource.GROUP, key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == _TRANSACTION and not context.allowed(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type == _SHARE and not on_cluster(context, Operation.CLUSTER_ACTION):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def list_groups(
    context: RequestContext[NodePlane],
    request: ListGroupsRequest,
    handle: Handle[ListGroupsRequest, ListGroupsResponse],
) -> Answer[ListGroupsResponse]:
    if on_cluster(context, Operation.DESCRIBE):
        return handle(context, request)

    def finish(response: ListGroupsResponse) -> ListGroupsResponse:
        response.groups = [
            g for g in paced(response.groups, 3) if context.allowed(Operation.DESCRIBE, Resource.GROUP, g.group_id)
        ]
        return response

    return then(handle(context, request), finish)


def _describe_each(groups_field: str) -> Rule:
    """DescribeGroups and its kin: a refusal for each group that may not be described, operations for the others."""

    def rule(context: RequestContext[NodePlane], request: Message, handle: Handle[Message, Any]) -> Answer[Any]:
        names = getattr(request, groups_field)
        allowed = [name for name in paced(names, 3) if context.allowed(Operation.DESCRIBE, Resource.GROUP, name)]
        may = set(allowed)
        denied = [_described(request, name) for name in paced(names, 5) if name not in may]
        if not allowed and denied:
            response = empty_response(request)
            response.groups = denied
            return response
        setattr(request, groups_field, allowed)

        def finish(response: Any) -> Any:
            if getattr(request, "include_authorized_operations", False):
                for group in paced(response.groups, 10):
                    if not group.error_code:
                        group.authorized_operations = context.operations(Resource.GROUP, group.group_id)
            response.groups = [*denied, *response.groups]
            return response

        return then(handle(context, request), finish)

    return rule


def _described(request: Message, name: str) -> Struct:
    """The "described group" of the request's own response."""
    import importlib

    from ottla.protocol.api import api

    words = api(request.API_KEY).name
    module = "".join(f"_{c.lower()}" if c.isupper() else c for c in words).lstrip("_") + "_response"
    group = importlib.import_module(f"ottla.protocol.generated.{module}").DescribedGroup
    described: Struct = group(group_id=name, error_code=GROUP_DENIED)
    return described


def offset_fetch(
    context: RequestContext[NodePlane],
    request: OffsetFetchRequest,
    handle: Handle[OffsetFetchRequest, OffsetFetchResponse],
) -> Answer[OffsetFetchResponse]:
    """DESCRIBE on the group and on each topic; all topics means those that may be described."""
    return (
        _several(context, request, handle)
        if context.version >= _SEVERAL_GROUPS_FROM
        else _single(context, request, handle)
    )


def _several(
    context: RequestContext[NodePlane],
    request: OffsetFetchRequest,
    handle: Handle[OffsetFetchRequest, OffsetFetchResponse],
) -> Answer[OffsetFetchResponse]:
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup

    allowed, refused = [], []
    hidden: dict[str, list[OffsetFetchResponseTopics]] = {}
    for group in paced(request.groups, 3):
        if not context.allowed(Operation.DESCRIBE, Resource.GROUP, group.group_id):
            refused.append(OffsetFetchResponseGroup(group.group_id, error_code=GROUP_DENIED))
            continue
        allowed.append(group)
        if group.topics is not None:
            group.topics, denied = split(context, group.topics, Operation.DESCRIBE, Resource.TOPIC, name_of_topic)
            hidden[group.group_id] = [_unread_topics(topic) for topic in paced(denied)]
    if not allowed and refused:
        return OffsetFetchResponse(groups=refused)
    request.groups = allowed

    def finish(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group in paced(response.groups, 3):
            if group.group_id in hidden:
                if not group.error_code:
                    group.topics = [*group.topics, *hidden[group.group_id]]
            else:
                group.topics = [
                    topic
                    for topic in paced(group.topics, 3)
                    if context.allowed(Operation.DESCRIBE, Resource.TOPIC, topic.name)
                ]
        response.groups = [*response.groups, *refused]
        return response

    return then(handle(context, request), finish)


def _single(
    context: RequestContext[NodePlane],
    request: OffsetFetchRequest,
    handle: Handle[OffsetFetchRequest, OffsetFetchResponse],
) -> Answer[OffsetFetchResponse]:
    from ottla.protocol.generated.offset_fetch_response import (
        OffsetFetchResponse,
    )

    if not context.allowed(Operation.DESCRIBE, Resource.GROUP, request.group_id):
        if context.version >= _GROUP_ERROR_FROM:
            return OffsetFetchResponse(error_code=GROUP_DENIED)
        return OffsetFetchResponse(topics=[_unread_topic(topic, GROUP_DENIED) for topic in paced(request.topics or ())])
    everything = request.topics is None
    denied: list[OffsetFetchRequestTopic] = []
    if request.topics is not None:
        request.topics, denied = split(context, request.topics, Operation.DESCRIBE, Resource.TOPIC, name_of_topic)

    def finish(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if everything:
            response.topics = [
                topic
                for topic in paced(response.topics, 3)
                if context.allowed(Operation.DESCRIBE, Resource.TOPIC, topic.name)
            ]
        elif not response.error_code:
            response.topics = [*response.topics, *(_unread_topic(topic, DENIED) for topic in paced(denied))]
        return response

    return then(handle(context, request), finish)


def _unread_topics(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponsePartitions, OffsetFetchResponseTopics

    partitions = [OffsetFetchResponsePartitions(index, -1, -1, "", DENIED) for index in paced(topic.partition_indexes)]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _unread_topic(topic: OffsetFetchRequestTopic, code: int) -> OffsetFetchResponseTopic:
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponsePartition, OffsetFetchResponseTopic

    partitions = [OffsetFetchResponsePartition(index, -1, -1, "", code) for index in paced(topic.partition_indexes)]
    return OffsetFetchResponseTopic(topic.name, partitions)


def group_heartbeat(
    context: RequestContext[NodePlane], request: HeartbeatRequestT, handle: Handle[HeartbeatRequestT, ResponseT]
) -> Answer[ResponseT]:
    """READ on the group, DESCRIBE on every topic that is subscribed to by name."""
    names = getattr(request, "subscribed_topic_names", None) or ()
    if not context.allowed(Operation.READ, Resource.GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif not all(context.allowed(Operation.DESCRIBE, Resource.TOPIC, name) for name in paced(names, 3)):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    else:
        return handle(context, request)
    refusal: ResponseT = refuse(request, code)
    return refusal


def _delete_group(name: str, code: int) -> DeletableGroupResult:
    from ottla.protocol.generated.delete_groups_response import DeletableGroupResult

    return DeletableGroupResult(name, code)


def _offset_delete(topic: OffsetDeleteRequestTopic, code: int) -> OffsetDeleteResponseTopic:
    from ottla.protocol.generated.offset_delete_response import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic

    partitions = [OffsetDeleteResponsePartition(item.partition_index, code) for item in topic.partitions]
    return OffsetDeleteResponseTopic(topic.name, partitions)


read_group = for_one(Operation.READ, Resource.GROUP, "group_id")
describe_groups = _describe_each("groups")
consumer_group_describe = share_group_describe = streams_group_describe = _describe_each("group_ids")
delete_groups = for_each("groups_names", Operation.DELETE, Resource.GROUP, _delete_group, name=itself, into="results")
offset_commit = all_of(
    read_group,
    for_each("topics", Operation.READ, Resource.TOPIC, offset_commit_topic, name=name_of_topic, into="topics"),
)
offset_delete = all_of(
    for_one(Operation.DELETE, Resource.GROUP, "group_id"),
    for_each("topics", Operation.READ, Resource.TOPIC, _offset_delete, name=by_name, into="topics"),
)
