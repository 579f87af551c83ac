"""Rules of the APIs around topics: metadata, creation, deletion, settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ottla.broker.authorization.rules import (
    FAILED,
    ResponseT,
    Rule,
    added,
    by_name,
    empty_response,
    for_each,
    on_cluster,
    split,
    then,
)
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer
from ottla.metadata.image import RESOURCE_GROUP, RESOURCE_TOPIC
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.model.pace import paced
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.protocol.primitives import Message, Struct
from ottla.security.acls import CLUSTER_NAME

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane
    from ottla.protocol.generated.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
    from ottla.protocol.generated.create_partitions_request import CreatePartitionsTopic
    from ottla.protocol.generated.create_partitions_response import CreatePartitionsTopicResult
    from ottla.protocol.generated.create_topics_request import CreateTopicsRequest
    from ottla.protocol.generated.create_topics_response import CreatableTopicResult, CreateTopicsResponse
    from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
    from ottla.protocol.generated.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
    from ottla.protocol.generated.describe_cluster_request import DescribeClusterRequest
    from ottla.protocol.generated.describe_cluster_response import DescribeClusterResponse
    from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
    from ottla.protocol.generated.describe_topic_partitions_request import DescribeTopicPartitionsRequest
    from ottla.protocol.generated.describe_topic_partitions_response import DescribeTopicPartitionsResponse
    from ottla.protocol.generated.incremental_alter_configs_request import (
        AlterConfigsResource as IncrementalAlterConfigsResource,
    )
    from ottla.protocol.generated.incremental_alter_configs_request import IncrementalAlterConfigsRequest
    from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
    from ottla.protocol.generated.metadata_response import MetadataResponse, MetadataResponseTopic

ConfigsRequestT = TypeVar(
    "ConfigsRequestT", "AlterConfigsRequest", "IncrementalAlterConfigsRequest", "DescribeConfigsRequest"
)
ConfigsResource: TypeAlias = "AlterConfigsResource | IncrementalAlterConfigsResource | DescribeConfigsResource"
DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def name_of_topic(context: RequestContext[NodePlane], item: object) -> str | None:
    """The topic's name of an item that has a name or an id; None for an unknown id."""
    topic_id = getattr(item, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        image = context.broker.image.topics_by_id.get(topic_id)
        return None if image is None else image.name
    return getattr(item, "name", None)


def topic_operations(context: RequestContext[NodePlane], name: str) -> int:
    return context.operations(Resource.TOPIC, name)


def metadata(
    context: RequestContext[NodePlane], request: MetadataRequest, handle: Handle[MetadataRequest, MetadataResponse]
) -> Answer[MetadataResponse]:
    """Topics that may not be described do not exist for the asker; a topic to be made needs CREATE."""
    from ottla.protocol.generated.metadata_response import MetadataResponseTopic

    everything = request.topics is None or (context.version == 0 and not request.topics)
    denied: list[MetadataResponseTopic] = []
    nothing_left = False
    if not everything and request.topics is not None:
        kept, hidden = split(context, request.topics, Operation.DESCRIBE, Resource.TOPIC, name_of_topic)
        for item in paced(hidden):
            by_id = item.topic_id != ZERO_UUID
            denied.append(MetadataResponseTopic(DENIED, None if by_id else item.name, item.topic_id))
        may_create = on_cluster(context, Operation.CREATE) or not _creates(context, request)
        request.topics = []
        for item in paced(kept, 3):
            if (
                may_create
                or _exists(context, item)
                or context.allowed(Operation.CREATE, Resource.TOPIC, item.name or "")
            ):
                request.topics.append(item)
            else:
                internal = item.name in INTERNAL_TOPICS
                denied.append(MetadataResponseTopic(DENIED, item.name, is_internal=internal))
        nothing_left = not request.topics

    def finish(response: MetadataResponse) -> MetadataResponse:
        topics = [] if nothing_left else response.topics
        if everything:
            topics = [t for t in paced(topics, 3) if context.allowed(Operation.DESCRIBE, Resource.TOPIC, t.name or "")]
        if request.include_topic_authorized_operations:
            for topic in paced(topics, 10):
                topic.topic_authorized_operations = topic_operations(context, topic.name or "")
        response.topics = [*topics, *denied]
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(context)
        return response

    return then(handle(context, request), finish)


def _creates(context: RequestContext[NodePlane], request: MetadataRequest) -> bool:
    requested = request.allow_auto_topic_creation or context.version < 4
    return requested and context.broker.config.auto_create_topics_enable


def _exists(context: RequestContext[NodePlane], item: MetadataRequestTopic) -> bool:
    return item.topic_id != ZERO_UUID or item.name in context.broker.image.topics_by_name


def cluster_operations(context: RequestContext[NodePlane]) -> int:
    if not on_cluster(context, Operation.DESCRIBE):
        return 0
    return context.operations(Resource.CLUSTER, CLUSTER_NAME)


def describe_cluster(
    context: RequestContext[NodePlane],
    request: DescribeClusterRequest,
    handle: Handle[DescribeClusterRequest, DescribeClusterResponse],
) -> Answer[DescribeClusterResponse]:
    def finish(response: DescribeClusterResponse) -> DescribeClusterResponse:
        if request.include_cluster_authorized_operations and not response.error_code:
            response.cluster_authorized_operations = cluster_operations(context)
        return response

    return then(handle(context, request), finish)


def describe_topic_partitions(
    context: RequestContext[NodePlane],
    request: DescribeTopicPartitionsRequest,
    handle: Handle[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse],
) -> Answer[DescribeTopicPartitionsResponse]:
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

    def finish(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        for topic in paced(response.topics, 10):
            topic.topic_authorized_operations = topic_operations(context, topic.name or "")
        response.topics = [*response.topics, *denied]
        return response

    return then(handle(context, request), finish)


def create_topics(
    context: RequestContext[NodePlane],
    request: CreateTopicsRequest,
    handle: Handle[CreateTopicsRequest, CreateTopicsResponse],
) -> Answer[CreateTopicsResponse]:
    """CREATE on the cluster or on each topic; the answer shows the settings of a new topic if the principal may
    describe them.
    """
    from ottla.protocol.generated.create_topics_response import CreatableTopicResult

    denied: list[CreatableTopicResult] = []
    if not on_cluster(context, Operation.CREATE):
        request.topics, refused = split(context, request.topics, Operation.CREATE, Resource.TOPIC, name_of_topic)
        denied = [
            CreatableTopicResult(name=topic.name, error_code=DENIED, error_message="Authorization failed.")
            for topic in paced(refused)
        ]

    def finish(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in paced(response.topics, 3):
            may_see = context.allowed(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name)
            if not topic.error_code and not may_see:
                topic.topic_config_error_code = DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = None if context.version >= 5 else []
        response.topics = [*response.topics, *denied]
        return response

    if not request.topics:
        return finish(empty_response(request))
    return then(handle(context, request), finish)


def delete_topics(
    context: RequestContext[NodePlane],
    request: DeleteTopicsRequest,
    handle: Handle[DeleteTopicsRequest, DeleteTopicsResponse],
) -> Answer[DeleteTopicsResponse]:
    """DELETE on the cluster or the topic. A principal that may not describe a topic cannot find out whether the topic
    exists.
    """
    from ottla.protocol.generated.delete_topics_response import DeletableTopicResult

    if on_cluster(context, Operation.DELETE):
        return handle(context, request)
    denied: list[DeletableTopicResult] = []

    def visible(name: str) -> bool:
        """Whether the handler may answer for the topic: the principal may delete it, or may describe it and it does not
        exist.
        """
        if context.allowed(Operation.DELETE, Resource.TOPIC, name):
            return True
        described = context.allowed(Operation.DESCRIBE, Resource.TOPIC, name)
        return described and name not in context.broker.image.topics_by_name

    names, topics = [], []
    for topic_name in paced(request.topic_names, 3):
        if visible(topic_name):
            names.append(topic_name)
        else:
            denied.append(DeletableTopicResult(name=topic_name, error_code=DENIED))
    for topic in paced(request.topics, 3):
        name = name_of_topic(context, topic)
        if name is None or visible(name):
            topics.append(topic)
        else:
            by_id = topic.topic_id != ZERO_UUID
            shown = context.allowed(Operation.DESCRIBE, Resource.TOPIC, name) if by_id else True
            denied.append(DeletableTopicResult(name if shown else None, topic.topic_id, DENIED))
    for result in denied:
        result.error_message = ErrorCode(DENIED).message
    if not denied:
        return handle(context, request)
    request.topic_names, request.topics = names, topics

    def finish(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses = [*response.responses, *denied]
        return response

    if not names and not topics:
        return finish(empty_response(request))
    return then(handle(context, request), finish)


def _configs(operation: int, into: str) -> Rule:
    """AlterConfigs, IncrementalAlterConfigs and DescribeConfigs: by the kind of resource."""

    def rule(
        context: RequestContext[NodePlane], request: ConfigsRequestT, handle: Handle[ConfigsRequestT, ResponseT]
    ) -> Answer[ResponseT]:
        checked = [(item, _may_access(context, operation, item)) for item in request.resources]
        refusals = [_config_refusal(request, item) for item, allowed in checked if not allowed]
        if not refusals:
            return handle(context, request)
        request.resources = [item for item, allowed in checked if allowed]
        if not request.resources:
            response: ResponseT = empty_response(request)
            return added(response, into, refusals)
        return then(handle(context, request), lambda response: added(response, into, refusals))

    return rule


def _may_access(context: RequestContext[NodePlane], operation: int, item: ConfigsResource) -> bool:
    kind = _config_resource(item)
    return context.allowed(operation, kind, CLUSTER_NAME if kind is Resource.CLUSTER else item.resource_name)


def _config_resource(item: ConfigsResource) -> Resource:
    if item.resource_type == RESOURCE_TOPIC:
        return Resource.TOPIC
    return Resource.GROUP if item.resource_type == RESOURCE_GROUP else Resource.CLUSTER


def _config_refusal(request: Message, item: ConfigsResource) -> Struct:
    from ottla.protocol.generated import (
        alter_configs_response,
        describe_configs_response,
        incremental_alter_configs_response,
    )

    results: dict[str, Callable[[int, str, int, str], Struct]] = {
        "AlterConfigsRequest": alter_configs_response.AlterConfigsResourceResponse,
        "IncrementalAlterConfigsRequest": incremental_alter_configs_response.AlterConfigsResourceResponse,
        "DescribeConfigsRequest": describe_configs_response.DescribeConfigsResult,
    }
    result = results[type(request).__name__]
    code = int(FAILED[_config_resource(item)])
    return result(code, ErrorCode(code).message, item.resource_type, item.resource_name)


def _create_partitions(topic: CreatePartitionsTopic, code: int) -> CreatePartitionsTopicResult:
    from ottla.protocol.generated.create_partitions_response import CreatePartitionsTopicResult

    return CreatePartitionsTopicResult(topic.name, code)


create_partitions = for_each(
    "topics", Operation.ALTER, Resource.TOPIC, _create_partitions, name=by_name, into="results"
)
describe_configs = _configs(Operation.DESCRIBE_CONFIGS, "results")
alter_configs = incremental_alter_configs = _configs(Operation.ALTER_CONFIGS, "responses")
