"""Rules of the APIs around topics: metadata, creation, deletion, settings."""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization.rules import FAILED, Handle, Rule, by_name, for_each, on_cluster, split, then
from ottla.broker.context import RequestContext
from ottla.metadata.image import RESOURCE_GROUP, RESOURCE_TOPIC
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.model.pace import paced
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.protocol.api import response_class
from ottla.security.acls import CLUSTER_NAME

DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_NO_TOPIC_ID_VERSION = 0


def topic_name(context: RequestContext, item: Any) -> str | None:
    """The topic's name of an item that has a name or an id; None for an unknown id."""
    topic_id = getattr(item, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        found = context.broker.image.topics_by_id.get(topic_id)
        return None if found is None else found.name
    return getattr(item, "name", None)


def topic_operations(context: RequestContext, name: str) -> int:
    return context.operations(Resource.TOPIC, name)


def metadata(context: RequestContext, request: Any, handle: Handle) -> Any:
    """Topics that may not be described do not exist for the asker; a topic to be made needs CREATE."""
    from ottla.protocol.generated.metadata_response import MetadataResponseTopic

    everything = request.topics is None or (context.version == 0 and not request.topics)
    denied: list[Any] = []
    nothing_left = False
    if not everything:
        kept, hidden = split(context, request.topics, Operation.DESCRIBE, Resource.TOPIC, topic_name)
        for item in paced(hidden):
            by_id = item.topic_id != ZERO_UUID
            denied.append(MetadataResponseTopic(DENIED, None if by_id else item.name, item.topic_id))
        may_create = on_cluster(context, Operation.CREATE) or not _creates(context, request)
        request.topics = []
        for item in paced(kept, 3):
            if may_create or _exists(context, item) or context.allowed(Operation.CREATE, Resource.TOPIC, item.name):
                request.topics.append(item)
            else:
                internal = item.name in INTERNAL_TOPICS
                denied.append(MetadataResponseTopic(DENIED, item.name, is_internal=internal))
        nothing_left = not request.topics

    def finish(response: Any) -> Any:
        topics = [] if nothing_left else response.topics
        if everything:
            topics = [t for t in paced(topics, 3) if context.allowed(Operation.DESCRIBE, Resource.TOPIC, t.name)]
        if request.include_topic_authorized_operations:
            for topic in paced(topics, 10):
                topic.topic_authorized_operations = topic_operations(context, topic.name or "")
        response.topics = [*topics, *denied]
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(context)
        return response

    return then(handle(context, request), finish)


def _creates(context: RequestContext, request: Any) -> bool:
    wanted = request.allow_auto_topic_creation or context.version < 4
    return bool(wanted and context.broker.config.auto_create_topics_enable)


def _exists(context: RequestContext, item: Any) -> bool:
    return item.topic_id != ZERO_UUID or item.name in context.broker.image.topics_by_name


def cluster_operations(context: RequestContext) -> int:
    if not on_cluster(context, Operation.DESCRIBE):
        return 0
    return context.operations(Resource.CLUSTER, CLUSTER_NAME)


def describe_cluster(context: RequestContext, request: Any, handle: Handle) -> Any:
    def finish(response: Any) -> Any:
        if request.include_cluster_authorized_operations and not response.error_code:
            response.cluster_authorized_operations = cluster_operations(context)
        return response

    return then(handle(context, request), finish)


def describe_topic_partitions(context: RequestContext, request: Any, handle: Handle) -> Any:
    """A request for all topics returns those that the principal may describe. A request for named topics returns a
    refusal for each other topic.
    """
    from ottla.protocol.generated.describe_topic_partitions_request import TopicRequest
    from ottla.protocol.generated.describe_topic_partitions_response import (
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponseTopic,
    )

    names = list(dict.fromkeys(topic.name for topic in paced(request.topics))) or sorted(
        context.broker.image.topics_by_name
    )
    allowed = [name for name in paced(names, 3) if context.allowed(Operation.DESCRIBE, Resource.TOPIC, name)]
    denied = []
    if request.topics:
        denied = [DescribeTopicPartitionsResponseTopic(DENIED, name) for name in paced(sorted({*names} - {*allowed}))]
    if not allowed:
        return DescribeTopicPartitionsResponse(topics=denied)
    request.topics = [TopicRequest(name) for name in paced(allowed)]

    def finish(response: Any) -> Any:
        for topic in paced(response.topics, 10):
            topic.topic_authorized_operations = topic_operations(context, topic.name)
        response.topics = [*response.topics, *denied]
        return response

    return then(handle(context, request), finish)


def create_topics(context: RequestContext, request: Any, handle: Handle) -> Any:
    """CREATE on the cluster or on each topic; the answer shows the settings of a new topic if the principal may
    describe them.
    """
    from ottla.protocol.generated.create_topics_response import CreatableTopicResult

    denied: list[Any] = []
    if not on_cluster(context, Operation.CREATE):
        request.topics, refused = split(context, request.topics, Operation.CREATE, Resource.TOPIC, topic_name)
        denied = [
            CreatableTopicResult(name=topic.name, error_code=DENIED, error_message="Authorization failed.")
            for topic in paced(refused)
        ]

    def finish(response: Any) -> Any:
        for topic in paced(response.topics, 3):
            may_see = context.allowed(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name)
            if not topic.error_code and not may_see:
                topic.topic_config_error_code = DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = None if context.version >= 5 else []
        response.topics = [*response.topics, *denied]
        return response

    if not request.topics:
        return finish(response_class(request.API_KEY)())
    return then(handle(context, request), finish)


def delete_topics(context: RequestContext, request: Any, handle: Handle) -> Any:
    """DELETE on the cluster or the topic. A principal that may not describe a topic cannot find out whether the topic
    exists.
    """
    from ottla.protocol.generated.delete_topics_response import DeletableTopicResult

    if on_cluster(context, Operation.DELETE):
        return handle(context, request)
    denied: list[Any] = []

    def visible(name: str) -> bool:
        """Whether the handler may answer for the topic: the principal may delete it, or may describe it and it does not
        exist.
        """
        if context.allowed(Operation.DELETE, Resource.TOPIC, name):
            return True
        described = context.allowed(Operation.DESCRIBE, Resource.TOPIC, name)
        return described and name not in context.broker.image.topics_by_name

    names, topics = [], []
    for name in paced(request.topic_names, 3):
        if visible(name):
            names.append(name)
        else:
            denied.append(DeletableTopicResult(name=name, error_code=DENIED))
    for topic in paced(request.topics, 3):
        found = topic_name(context, topic)
        if found is None or visible(found):
            topics.append(topic)
        else:
            by_id = topic.topic_id != ZERO_UUID
            shown = context.allowed(Operation.DESCRIBE, Resource.TOPIC, found) if by_id else True
            denied.append(DeletableTopicResult(found if shown else None, topic.topic_id, DENIED))
    for result in denied:
        result.error_message = ErrorCode(DENIED).message
    if not denied:
        return handle(context, request)
    request.topic_names, request.topics = names, topics
    if not names and not topics:
        response: Any = response_class(request.API_KEY)()
        response.responses = denied
        return response

    def finish(response: Any) -> Any:
        response.responses = [*response.responses, *denied]
        return response

    return then(handle(context, request), finish)


def _configs(operation: int, into: str) -> Rule:
    """AlterConfigs, IncrementalAlterConfigs and DescribeConfigs: by the kind of resource."""

    def rule(context: RequestContext, request: Any, handle: Handle) -> Any:
        allowed: list[Any] = []
        denied: list[Any] = []
        for item in request.resources:
            kind = _config_resource(item)
            name = CLUSTER_NAME if kind is Resource.CLUSTER else item.resource_name
            (allowed if context.allowed(operation, kind, name) else denied).append(item)
        if not denied:
            return handle(context, request)
        answers = [_config_refusal(request, item, int(FAILED[_config_resource(item)])) for item in denied]
        request.resources = allowed

        def finish(response: Any) -> Any:
            setattr(response, into, [*getattr(response, into), *answers])
            return response

        if not allowed:
            return finish(response_class(request.API_KEY)())
        return then(handle(context, request), finish)

    return rule


def _config_resource(item: Any) -> Resource:
    if item.resource_type == RESOURCE_TOPIC:
        return Resource.TOPIC
    return Resource.GROUP if item.resource_type == RESOURCE_GROUP else Resource.CLUSTER


def _config_refusal(request: Any, item: Any, code: int) -> Any:
    from ottla.protocol.generated import (
        alter_configs_response,
        describe_configs_response,
        incremental_alter_configs_response,
    )

    makers: dict[str, Any] = {
        "AlterConfigsRequest": alter_configs_response.AlterConfigsResourceResponse,
        "IncrementalAlterConfigsRequest": incremental_alter_configs_response.AlterConfigsResourceResponse,
        "DescribeConfigsRequest": describe_configs_response.DescribeConfigsResult,
    }
    made = makers[type(request).__name__]
    return made(code, ErrorCode(code).message, item.resource_type, item.resource_name)


def _create_partitions(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.create_partitions_response import CreatePartitionsTopicResult

    return CreatePartitionsTopicResult(topic.name, code)


create_partitions = for_each(
    "topics", Operation.ALTER, Resource.TOPIC, _create_partitions, name=by_name, into="results"
)
describe_configs = _configs(Operation.DESCRIBE_CONFIGS, "results")
alter_configs = incremental_alter_configs = _configs(Operation.ALTER_CONFIGS, "responses")
