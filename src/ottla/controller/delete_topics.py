"""DeleteTopics: by name (all versions) and by id (v6)."""

from __future__ import annotations

from collections import Counter

from ottla.controller.outcome import OK, ApiError, generic
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.records import RemoveTopicRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, Uuid
from ottla.model.pace import paced
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.protocol.primitives import Message


def delete_topics(
    state: ControllerState, request: DeleteTopicsRequest, context: ControllerRequestContext
) -> Decision[Message, DeleteTopicsResponse]:
    if not state.settings.delete_topic_enable:
        if context.version < 3:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    results: list[DeletableTopicResult] = []
    names, ids = _requested_topics(request, results)
    topic_names: dict[Uuid, str] = {}
    for topic_id in paced(ids, 2):
        topic = state.image.topics_by_id.get(topic_id)
        if topic is None:
            results.append(_result(None, topic_id, generic(ErrorCode.UNKNOWN_TOPIC_ID)))
        else:
            topic_names[topic_id] = topic.name
    for name in paced(names, 2):
        topic = state.image.topics_by_name.get(name)
        if topic is None:
            results.append(_result(name, ZERO_UUID, generic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        elif topic_names.pop(topic.id, None) is not None:
            twice = "The provided topic name maps to an ID that was already supplied."
            results.append(_result(name, topic.id, ApiError(ErrorCode.INVALID_REQUEST, twice)))
        else:
            topic_names[topic.id] = name
    records: list[Message] = [RemoveTopicRecord(topic_id) for topic_id in paced(topic_names)]
    results += [_result(name, topic_id, OK) for topic_id, name in paced(topic_names.items(), 2)]
    return Decision(DeleteTopicsResponse(responses=results), records)


def _requested_topics(
    request: DeleteTopicsRequest, results: list[DeletableTopicResult]
) -> tuple[list[str], list[Uuid]]:
    """The names and ids to delete; malformed and repeated entries are answered in `results`."""
    names = Counter(request.topic_names)
    ids: Counter[Uuid] = Counter()
    for topic in paced(request.topics):
        if topic.name is None and topic.topic_id == ZERO_UUID:
            nothing = ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
            results.append(_result(None, ZERO_UUID, nothing))
        elif topic.name is None:
            ids[topic.topic_id] += 1
        elif topic.topic_id == ZERO_UUID:
            names[topic.name] += 1
        else:
            ambiguous = ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
            results.append(_result(topic.name, topic.topic_id, ambiguous))
    duplicate = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [_result(name, ZERO_UUID, duplicate) for name, count in names.items() if count > 1]
    duplicate = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    results += [_result(None, topic_id, duplicate) for topic_id, count in ids.items() if count > 1]
    return [n for n, count in names.items() if count == 1], [i for i, count in ids.items() if count == 1]


def _result(name: str | None, topic_id: Uuid, error: ApiError) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
