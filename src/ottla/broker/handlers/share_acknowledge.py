"""ShareAcknowledge: what a member has done with the records that it acquired (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.handlers.share_group_heartbeat import is_member_id, serves_share_groups
from ottla.broker.leadership import current_leader, leader_endpoints
from ottla.broker.share import group_limits
from ottla.broker.share.acknowledging import Outcome, acknowledge
from ottla.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.pace import paced
from ottla.protocol.generated.share_acknowledge_request import ShareAcknowledgeRequest
from ottla.protocol.generated.share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane

_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def handle(
    context: RequestContext[SharePlane], request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Deferred[ShareAcknowledgeResponse]:
    try:
        key = _session_key(context, request)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code)
    answers: list[ShareAcknowledgeResponse] = []
    waiting: list[Deferred[ShareAcknowledgeResponse]] = []

    def finish(outcome: Outcome) -> None:
        response = _response(context, key.group_id, outcome)
        if request.share_session_epoch == FINAL_EPOCH:
            context.broker.shares.end_session(key)
        if waiting:
            waiting[0].resolve(response)
        else:
            answers.append(response)

    acknowledge(
        context,
        key.group_id,
        key.member_id,
        {
            (topic.topic_id, row.partition_index): row.acknowledgement_batches
            for topic in paced(request.topics)
            for row in paced(topic.partitions)
        },
        finish,
        is_renew=request.is_renew_ack,
    )
    if answers:
        return answers[0]
    waiting.append(Deferred())
    return waiting[0]


def _session_key(context: RequestContext[SharePlane], request: ShareAcknowledgeRequest) -> SessionKey:
    if not serves_share_groups(context):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not is_member_id(request.member_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    if request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    key = SessionKey(request.group_id, request.member_id or "")
    session = context.broker.shares.sessions.find(key, request.share_session_epoch)
    if request.share_session_epoch != FINAL_EPOCH:
        session.next_epoch()
    return key


def _response(context: RequestContext[SharePlane], group_id: str, outcome: Outcome) -> ShareAcknowledgeResponse:
    topics: dict[Uuid, ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for (topic_id, index), error in paced(outcome.items(), 2):
        data = PartitionData(index)
        if error is not None:
            data.error_code, data.error_message = error.code, error.message
            if error.code in _LEADER_ERRORS:
                leader_id, epoch = current_leader(context, "", topic_id, index)
                data.current_leader = LeaderIdAndEpoch(leader_id, epoch)
                leaders.add(leader_id)
        topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id, [])).partitions.append(data)
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=group_limits.record_lock_duration_ms(context.broker, group_id),
        responses=list(topics.values()),
    )
    if leaders:
        response.node_endpoints = leader_endpoints(context, leaders, NodeEndpoint)
    return response
