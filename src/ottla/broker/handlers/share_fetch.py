"""ShareFetch: acknowledge what a member has done, and acquire more records for it (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.handlers.share_group_heartbeat import is_member_id, serves_share_groups
from ottla.broker.leadership import current_leader, leader_endpoints
from ottla.broker.share import group_limits
from ottla.broker.share.acknowledging import Outcome, acknowledge
from ottla.broker.share.fetching import Place, ShareFetch, failed
from ottla.broker.share.sessions import FEW_PARTITIONS, FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.pace import paced
from ottla.protocol.generated.share_fetch_request import ShareFetchRequest
from ottla.protocol.generated.share_fetch_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane

_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def is_large(context: RequestContext[SharePlane], request: ShareFetchRequest) -> bool:
    """A request of a few bytes may ask for all partitions of its session."""
    key = SessionKey(request.group_id or "", request.member_id or "")
    return context.broker.shares.sessions.size(key) > FEW_PARTITIONS


def handle(
    context: RequestContext[SharePlane], request: ShareFetchRequest
) -> ShareFetchResponse | Deferred[ShareFetchResponse]:
    try:
        _validate(context, request)
        session = _session(context, request)
    except KafkaError as error:
        response = ShareFetchResponse(error_code=error.code)
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _answer_later(context, response, request.max_wait_ms)
        return response
    return _Exchange(context, request, session).run()


def _validate(context: RequestContext[SharePlane], request: ShareFetchRequest) -> None:
    if not serves_share_groups(context):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not is_member_id(request.member_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    if request.is_renew_ack:
        wrong = [
            f"{name} must be set to 0, "
            for name, value in (
                ("maxBytes", request.max_bytes),
                ("minBytes", request.min_bytes),
                ("maxRecords", request.max_records),
                ("maxWaitMs", request.max_wait_ms),
            )
            if value != 0
        ]
        if wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "".join(wrong) + "if isRenewAck is true.")


def _session(context: RequestContext[SharePlane], request: ShareFetchRequest) -> ShareSession | None:
    """The member's session as the request leaves it; None for its last request."""
    shares = context.broker.shares
    key = SessionKey(request.group_id or "", request.member_id or "")
    places = _places(request)
    if request.share_session_epoch == INITIAL_EPOCH:
        if any(row.acknowledgement_batches for topic in request.topics for row in topic.partitions):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        session = shares.sessions.begin(key, context.connection, places)
        shares.tie(context.connection)
        return session
    session = shares.sessions.find(key, request.share_session_epoch)
    if request.share_session_epoch == FINAL_EPOCH:
        return None
    forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    session.update(places, forgotten)
    if places and not shares.sessions.has_room(len(session.partitions), 0):
        shares.end_session(key)
        raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    session.next_epoch()
    return session


def _places(request: ShareFetchRequest) -> list[Place]:
    return [(topic.topic_id, row.partition_index) for topic in paced(request.topics) for row in paced(topic.partitions)]


def _answer_later(
    context: RequestContext[SharePlane], response: ShareFetchResponse, wait_ms: int
) -> Deferred[ShareFetchResponse]:
    """A member that finds no place shall not ask in a loop."""
    timer = context.broker.timers.call_later(max(wait_ms, 0), lambda: deferred.resolve(response))
    deferred: Deferred[ShareFetchResponse] = Deferred(timer.cancel)
    return deferred


class _Exchange:
    """One request: its acknowledgements and its fetch go side by side, its answer leaves when both are done."""

    def __init__(
        self, context: RequestContext[SharePlane], request: ShareFetchRequest, session: ShareSession | None
    ) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._deferred: Deferred[ShareFetchResponse] | None = None
        self._response: ShareFetchResponse | None = None
        self._acknowledged: Outcome | None = None
        self._fetched: dict[Place, PartitionData] | None = None
        self._fetch: ShareFetch | None = None

    def run(self) -> ShareFetchResponse | Deferred[ShareFetchResponse]:
        request, context = self._request, self._context
        rows = {
            (topic.topic_id, row.partition_index): row
            for topic in paced(request.topics)
            for row in paced(topic.partitions)
        }
        has_acknowledgements = any(row.acknowledgement_batches for row in rows.values())
        acknowledge(
            context,
            request.group_id or "",
            request.member_id or "",
            {place: row.acknowledgement_batches for place, row in rows.items()} if has_acknowledgements else {},
            self._on_acknowledged,
            is_renew=request.is_renew_ack,
        )
        errors, places = self._readable()
        if request.is_renew_ack:
            self._on_fetched({})
        else:
            self._fetch = ShareFetch(
                context.broker, request, places, lambda fetched: self._on_fetched(errors | fetched)
            )
            self._fetch.start()
        if self._response is not None:
            return self._response
        self._deferred = Deferred(self._fetch.cancel if self._fetch is not None else None)
        return self._deferred

    def _readable(self) -> tuple[dict[Place, PartitionData], list[Place]]:
        """What may be read, and why the rest may not."""
        errors: dict[Place, PartitionData] = {}
        places: list[Place] = []
        topics = self._context.broker.image.topics_by_id
        for place in paced(list(self._session.partitions) if self._session is not None else (), 3):
            topic = topics.get(place[0])
            if topic is None:
                errors[place] = failed(place[1], KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
            elif not self._context.allowed(Operation.READ, Resource.TOPIC, topic.name):
                errors[place] = failed(place[1], KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif place[1] not in topic.partitions:
                errors[place] = failed(place[1], KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                places.append(place)
        return errors, places

    def _on_acknowledged(self, outcome: Outcome) -> None:
        self._acknowledged = outcome
        self._maybe_answer()

    def _on_fetched(self, fetched: dict[Place, PartitionData]) -> None:
        self._fetched = fetched
        self._maybe_answer()

    def _maybe_answer(self) -> None:
        if self._fetched is None or self._acknowledged is None:
            return
        self._count(self._fetched)
        response = self._response = self._build(self._fetched, self._acknowledged)
        request = self._request
        if request.share_session_epoch == FINAL_EPOCH:
            self._context.broker.shares.end_session(SessionKey(request.group_id or "", request.member_id or ""))
        if self._deferred is not None:
            self._deferred.resolve(response)

    def _count(self, fetched: dict[Place, PartitionData]) -> None:
        metrics = self._context.broker.metrics
        if metrics is None:
            return
        topics = self._context.broker.image.topics_by_id
        for (topic_id, _), data in fetched.items():
            topic = topics.get(topic_id)
            if topic is not None:
                failed_ = bool(data.error_code)
                metrics.share_fetched(self._context, topic.name, len(data.records or b""), failed=failed_)

    def _build(self, fetched: dict[Place, PartitionData], acknowledged: Outcome) -> ShareFetchResponse:
        context, group_id = self._context, self._request.group_id or ""
        lock_ms = group_limits.record_lock_duration_ms(context.broker, group_id)
        response = ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms, responses=[])
        first = self._request.share_session_epoch == INITIAL_EPOCH
        topics: dict[Uuid, ShareFetchableTopicResponse] = {}
        leaders: set[int] = set()

        def include(topic_id: Uuid, data: PartitionData) -> None:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id, [])
                response.responses.append(topic)
            topic.partitions.append(data)

        for place, data in paced(fetched.items(), 3):
            if data.error_code in _LEADER_ERRORS:
                leader_id, epoch = current_leader(context, "", *place)
                data.current_leader = LeaderIdAndEpoch(leader_id, epoch)
                leaders.add(leader_id)
            included = self._session is None or self._session.is_included(
                place, records=bool(data.records), error=bool(data.error_code)
            )
            if included or first or place in acknowledged:
                include(place[0], data)
        for place, error in acknowledged.items():
            row = fetched.get(place)
            if row is None:
                row = PartitionData(place[1], records=b"")
                include(place[0], row)
            if error is not None:
                row.acknowledge_error_code, row.acknowledge_error_message = error.code, error.message
        if leaders:
            response.node_endpoints = leader_endpoints(context, leaders, NodeEndpoint)
        return response
