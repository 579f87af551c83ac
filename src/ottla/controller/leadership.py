"""Leaders when brokers come and go, and ElectLeaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.controller.outcome import OK, ApiError, generic
from ottla.controller.partition_change import Election, partition_change
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.image import PartitionRegistration, TopicImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.pace import paced, spend
from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest
from ottla.protocol.generated.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.protocol.primitives import Message

PREFERRED = 0
UNCLEAN = 1

Partition = tuple[TopicImage, int, PartitionRegistration]


def all_partitions(state: ControllerState) -> Iterator[Partition]:
    for topic in state.image.topics_by_id.values():
        for index, partition in paced(topic.partitions.items()):
            yield topic, index, partition


def partitions_with_isr(state: ControllerState, broker_id: NodeId) -> Iterator[Partition]:
    return (entry for entry in all_partitions(state) if broker_id in entry[2].isr)


def partitions_with_elr(state: ControllerState, broker_id: NodeId) -> Iterator[Partition]:
    return (entry for entry in all_partitions(state) if broker_id in entry[2].elr)


def leaderless_partitions(state: ControllerState) -> Iterator[Partition]:
    return (entry for entry in all_partitions(state) if not entry[2].has_leader)


def has_leaderships(state: ControllerState, broker_id: NodeId) -> bool:
    return any(partition.leader == broker_id for _, _, partition in all_partitions(state))


def leader_and_isr_updates(
    state: ControllerState,
    partitions: Iterable[Partition],
    *,
    remove: NodeId = NO_NODE,
    add: NodeId = NO_NODE,
    unclean_shutdown: NodeId = NO_NODE,
) -> list[PartitionChangeRecord]:
    """Changes that remove `remove` from ISRs, or allow `add` to lead although the image still has it fenced, or drop
    `unclean_shutdown` from all ISRs and ELRs.
    """

    def alive(replica: NodeId) -> bool:
        if replica in (remove, unclean_shutdown):
            return False
        return replica == add or state.active(replica)

    records = []
    settings: dict[str, tuple[bool, int]] = {}
    for topic, index, partition in partitions:
        spend(20)
        if topic.name not in settings:
            settings[topic.name] = (state.unclean_election_enabled(topic.name), state.min_isr(topic.name))
        unclean, min_isr = settings[topic.name]
        change = partition_change(state, topic.name, topic.id, index, partition, alive=alive, min_isr=min_isr)
        if unclean:
            change.election = Election.UNCLEAN
        change.unclean_shutdown = unclean_shutdown
        change.isr = [replica for replica in partition.isr if replica not in (remove, unclean_shutdown)]
        record = change.build()
        if record is not None:
            records.append(record)
    return records


def elect_leaders(
    state: ControllerState, request: ElectLeadersRequest, _context: ControllerRequestContext
) -> Decision[Message, ElectLeadersResponse]:
    if request.election_type not in (PREFERRED, UNCLEAN) and request.topic_partitions != []:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    records: list[Message] = []
    results = []
    if request.topic_partitions is None:
        for name, topic in state.image.topics_by_name.items():
            outcomes = [
                (index, _elect(state, name, index, request.election_type, records))
                for index in paced(topic.partitions, 20)
            ]
            attempted = [entry for entry in outcomes if entry[1].code != ErrorCode.ELECTION_NOT_NEEDED]
            results.append(_result(name, attempted))
    else:
        for topic_request in request.topic_partitions:
            outcomes = [
                (i, _elect(state, topic_request.topic, i, request.election_type, records))
                for i in paced(topic_request.partitions, 20)
            ]
            results.append(_result(topic_request.topic, outcomes))
    return Decision(ElectLeadersResponse(error_code=0, replica_election_results=results), records)


def _result(topic: str, outcomes: list[tuple[int, ApiError]]) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic, [PartitionResult(index, error.code, error.message) for index, error in outcomes]
    )


def _elect(state: ControllerState, name: str, index: int, kind: int, records: list[Message]) -> ApiError:
    topic = state.image.topics_by_name.get(name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if partition.has_preferred_leader if kind == PREFERRED else partition.has_leader:
        return generic(ErrorCode.ELECTION_NOT_NEEDED)
    change = partition_change(state, name, topic.id, index, partition)
    change.election = Election.PREFERRED if kind == PREFERRED else Election.UNCLEAN
    record = change.build()
    if record is None:
        nobody = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if kind == PREFERRED else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        return generic(nobody)
    records.append(record)
    return OK
