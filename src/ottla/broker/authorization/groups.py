"""Rules of groups and their offsets."""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization.refusals import offset_commit_topic, refuse
from ottla.broker.authorization.rules import (
    Handle,
    all_of,
    by_name,
    for_each,
    for_one,
    itself,
    on_cluster,
    split,
    then,
)
from ottla.broker.authorization.topics import DENIED, topic_name
from ottla.broker.context import RequestContext
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.api import response_class

GROUP_DENIED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_BATCHED_FROM = 4
_SEVERAL_GROUPS_FROM = 8
_GROUP_ERROR_FROM = 2


def find_coordinator(context: RequestContext, request: Any, handle: Handle) -> Any:
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

    def finish(response: Any) -> Any:
        response.coordinators = [*response.coordinators, *denied]
        return response

    return then(handle(context, request), finish)


def _coordinator_code(context: RequestContext, key_type: int, key: str) -> ErrorCode:
    if key_type == _GROUP and not context.allowed(Operation.DESCRIBE, Resource.GROUP, key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == _TRANSACTION and not context.allowed(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type == _SHARE and not on_cluster(context, Operation.CLUSTER_ACTION):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def list_groups(context: RequestContext, request: Any, handle: Handle) -> Any:
    if on_cluster(context, Operation.DESCRIBE):
        return handle(context, request)

    def finish(response: Any) -> Any:
        response.groups = [
            g for g in paced(response.groups, 3) if context.allowed(Operation.DESCRIBE, Resource.GROUP, g.group_id)
        ]
        return response

    return then(handle(context, request), finish)


def _describe_each(groups_field: str, id_field: str) -> Any:
    """DescribeGroups and its kin: a refusal for each group that may not be described, operations for the others."""

    def rule(context: RequestContext, request: Any, handle: Handle) -> Any:
        names = getattr(request, groups_field)
        allowed = [name for name in paced(names, 3) if context.allowed(Operation.DESCRIBE, Resource.GROUP, name)]
        may = set(allowed)
        response: Any = response_class(request.API_KEY)()
        denied = [_described(request, name, id_field) for name in paced(names, 5) if name not in may]
        if not allowed and denied:
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


def _described(request: Any, name: str, id_field: str) -> Any:
    """The "described group" of the request's own response."""
    import importlib

    from ottla.protocol.api import api

    words = api(request.API_KEY).name
    module = "".join(f"_{c.lower()}" if c.isupper() else c for c in words).lstrip("_") + "_response"
    group = importlib.import_module(f"ottla.protocol.generated.{module}").DescribedGroup
    made = group(error_code=GROUP_DENIED)
    setattr(made, id_field, name)
    return made


def offset_fetch(context: RequestContext, request: Any, handle: Handle) -> Any:
    """DESCRIBE on the group and on each topic; all topics means those that may be described."""
    return (
        _several(context, request, handle)
        if context.version >= _SEVERAL_GROUPS_FROM
        else _single(context, request, handle)
    )


def _several(context: RequestContext, request: Any, handle: Handle) -> Any:
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup

    allowed, refused = [], []
    hidden: dict[str, list[Any]] = {}
    for group in paced(request.groups, 3):
        if not context.allowed(Operation.DESCRIBE, Resource.GROUP, group.group_id):
            refused.append(OffsetFetchResponseGroup(group.group_id, error_code=GROUP_DENIED))
            continue
        allowed.append(group)
        if group.topics is not None:
            group.topics, denied = split(context, group.topics, Operation.DESCRIBE, Resource.TOPIC, topic_name)
            hidden[group.group_id] = [_unread_topics(topic) for topic in paced(denied)]
    if not allowed and refused:
        return OffsetFetchResponse(groups=refused)
    request.groups = allowed

    def finish(response: Any) -> Any:
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


def _single(context: RequestContext, request: Any, handle: Handle) -> Any:
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponse

    if not context.allowed(Operation.DESCRIBE, Resource.GROUP, request.group_id):
        if context.version >= _GROUP_ERROR_FROM:
            return OffsetFetchResponse(error_code=GROUP_DENIED)
        return OffsetFetchResponse(topics=[_unread_topic(topic, GROUP_DENIED) for topic in paced(request.topics or ())])
    everything = request.topics is None
    denied: list[Any] = []
    if not everything:
        request.topics, denied = split(context, request.topics, Operation.DESCRIBE, Resource.TOPIC, topic_name)

    def finish(response: Any) -> Any:
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


def _unread_topics(topic: Any) -> Any:
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponsePartitions, OffsetFetchResponseTopics

    partitions = [OffsetFetchResponsePartitions(index, -1, -1, "", DENIED) for index in paced(topic.partition_indexes)]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _unread_topic(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponsePartition, OffsetFetchResponseTopic

    partitions = [OffsetFetchResponsePartition(index, -1, -1, "", code) for index in paced(topic.partition_indexes)]
    return OffsetFetchResponseTopic(topic.name, partitions)


def group_heartbeat(context: RequestContext, request: Any, handle: Handle) -> Any:
    """READ on the group, DESCRIBE on every topic that is subscribed to by name."""
    if not context.allowed(Operation.READ, Resource.GROUP, request.group_id):
        return refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for name in paced(getattr(request, "subscribed_topic_names", None) or (), 3):
        if not context.allowed(Operation.DESCRIBE, Resource.TOPIC, name):
            return refuse(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return handle(context, request)


def _delete_group(name: str, code: int) -> Any:
    from ottla.protocol.generated.delete_groups_response import DeletableGroupResult

    return DeletableGroupResult(name, code)


def _offset_delete(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.offset_delete_response import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic

    partitions = [OffsetDeleteResponsePartition(item.partition_index, code) for item in topic.partitions]
    return OffsetDeleteResponseTopic(topic.name, partitions)


read_group = for_one(Operation.READ, Resource.GROUP, "group_id")
describe_groups = _describe_each("groups", "group_id")
consumer_group_describe = share_group_describe = streams_group_describe = _describe_each("group_ids", "group_id")
delete_groups = for_each("groups_names", Operation.DELETE, Resource.GROUP, _delete_group, name=itself, into="results")
offset_commit = all_of(
    read_group,
    for_each("topics", Operation.READ, Resource.TOPIC, offset_commit_topic, name=topic_name, into="topics"),
)
offset_delete = all_of(
    for_one(Operation.DELETE, Resource.GROUP, "group_id"),
    for_each("topics", Operation.READ, Resource.TOPIC, _offset_delete, name=by_name, into="topics"),
)
