"""Acknowledgements of a request: checks them and passes them to the share-partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.coordinator.share.in_flight import GAP, REJECT, RENEW, Acknowledgement
from ottla.coordinator.share.records import SharePartitionKey
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.metrics import BrokerMetrics
    from ottla.broker.planes import SharePlane

Place = tuple[Uuid, int]


class AcknowledgementRefusal(NamedTuple):
    code: ErrorCode
    message: str | None = None


Outcome = dict[Place, AcknowledgementRefusal | None]
_RENEW_FROM = 2


class WireBatch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def acknowledge(
    context: RequestContext[SharePlane],
    group_id: str,
    member_id: str,
    acknowledgements: Mapping[Place, Sequence[WireBatch]],
    done: Callable[[Outcome], None],
    *,
    is_renew: bool,
) -> None:
    """`done` gets a refusal or None for each place, once everything is written down."""
    metrics = context.broker.metrics
    if metrics is not None:
        done = partial(_count, context, metrics, acknowledgements, done)
    outcome: Outcome = {}
    interested: dict[Place, list[Acknowledgement]] = {}
    nothing_said: list[Place] = []
    for place, batches in acknowledgements.items():
        try:
            rows = _checked_at(context, place, batches, is_renew=is_renew)
        except KafkaError as error:
            outcome[place] = AcknowledgementRefusal(error.code)
            continue
        if rows:
            interested[place] = rows
        else:
            nothing_said.append(place)
    if not interested:
        done(outcome)
        return
    outcome.update(dict.fromkeys(nothing_said))
    left = len(interested)

    def answered(place: Place, error: KafkaError | None) -> None:
        nonlocal left
        outcome[place] = None if error is None else AcknowledgementRefusal(error.code, error.message)
        left -= 1
        if left == 0:
            done(outcome)

    for place, rows in interested.items():
        try:
            share_partition = context.broker.shares.find(SharePartitionKey(group_id, *place))
        except KafkaError as error:
            answered(place, error)
            continue
        share_partition.acknowledge(member_id, rows, partial(answered, place))


def _count(
    context: RequestContext[SharePlane],
    metrics: BrokerMetrics,
    acknowledgements: Mapping[Place, Sequence[WireBatch]],
    done: Callable[[Outcome], None],
    outcome: Outcome,
) -> None:
    topics = context.broker.image.topics_by_id
    for place, refusal in outcome.items():
        topic = topics.get(place[0])
        if topic is None or not acknowledgements[place]:
            continue
        metrics.share_acknowledged(topic.name, failed=refusal is not None)
        if refusal is None:
            for batch in acknowledgements[place]:
                metrics.words_of(batch.acknowledge_types, batch.last_offset - batch.first_offset + 1)
    done(outcome)


def _checked_at(
    context: RequestContext[SharePlane], place: Place, batches: Sequence[WireBatch], *, is_renew: bool
) -> list[Acknowledgement]:
    topic = context.broker.image.topics_by_id.get(place[0])
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    rows = _checked(batches, context.version, is_renew=is_renew)
    if not context.allowed(Operation.READ, Resource.TOPIC, topic.name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if place[1] not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return rows


def _checked(batches: Sequence[WireBatch], version: int, *, is_renew: bool) -> list[Acknowledgement]:
    last_kind = RENEW if version >= _RENEW_FROM else REJECT
    previous_last = -1
    rows = []
    for batch in batches:
        kinds = batch.acknowledge_types
        count = batch.last_offset - batch.first_offset + 1
        if (
            count < 1
            or batch.first_offset < previous_last
            or not kinds
            or len(kinds) not in (1, count)
            or not all(GAP <= kind <= last_kind for kind in kinds)
            or (RENEW in kinds and not is_renew)
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        previous_last = batch.last_offset
        rows.append(Acknowledgement(batch.first_offset, batch.last_offset, kinds))
    return rows
