"""Broker registration, heartbeats, fencing, controlled shutdown, UnregisterBroker; controllers register here too.

A broker's epoch is the offset at which its registration is written. Durable facts are records; whether a broker is
still there is a session that heartbeats keep (`ControllerState.sessions`).
"""

from __future__ import annotations

import math
from typing import Any

from ottla.controller.leadership import (
    all_partitions,
    has_leaderships,
    leader_and_isr_updates,
    leaderless_partitions,
    partitions_with_elr,
    partitions_with_isr,
)
from ottla.controller.state import BrokerSession, ControllerRequestContext, ControllerState
from ottla.metadata.features import DIRECTORY_ASSIGNMENT_SINCE, ELR_SINCE, METADATA_VERSION, Range
from ottla.metadata.image import BrokerRegistration
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.registrations import FENCE, IN_CONTROLLED_SHUTDOWN, UNFENCE
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId, Uuid, uuid_to_str
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_heartbeat_response import BrokerHeartbeatResponse
from ottla.protocol.generated.broker_registration_request import BrokerRegistrationRequest
from ottla.protocol.generated.broker_registration_response import BrokerRegistrationResponse
from ottla.protocol.generated.controller_registration_request import ControllerRegistrationRequest
from ottla.protocol.generated.controller_registration_response import ControllerRegistrationResponse
from ottla.protocol.generated.register_broker_record import BrokerEndpoint, BrokerFeature
from ottla.protocol.generated.register_controller_record import ControllerEndpoint, ControllerFeature
from ottla.protocol.generated.unregister_broker_request import UnregisterBrokerRequest
from ottla.protocol.generated.unregister_broker_response import UnregisterBrokerResponse
from ottla.protocol.primitives import Message

_RESERVED_DIRECTORIES = 100


def register_broker(
    state: ControllerState, request: BrokerRegistrationRequest, context: ControllerRequestContext
) -> Decision[Message, BrokerRegistrationResponse]:
    cluster_id = state.settings.cluster_id
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if request.broker_id < 0:
        raise _invalid_registration(
            f"{request.broker_id} is not a node id: in the metadata, -1 means that no broker leads"
        )
    existing = state.image.brokers.get(request.broker_id)
    _check_incarnation(state, request, existing)
    _check_directories(state, request)
    _check_features(state, request)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=[BrokerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners],
        features=[BrokerFeature(f.name, f.min_supported_version, f.max_supported_version) for f in request.features],
        rack=request.rack,
        log_dirs=request.log_dirs if state.image.metadata_version >= DIRECTORY_ASSIGNMENT_SINCE else [],
    )
    records: list[Message] = []
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        records += _cleanup_of_old_incarnation(state, request, existing, context)
        record.broker_epoch = state.quorum.end_offset
    records.append(record)
    state.sessions[request.broker_id] = BrokerSession(
        state.clock.monotonic_ms(), registration_offset=state.quorum.end_offset + len(records) - 1
    )
    return Decision(BrokerRegistrationResponse(broker_epoch=record.broker_epoch), records)


def _check_incarnation(
    state: ControllerState, request: BrokerRegistrationRequest, existing: BrokerRegistration | None
) -> None:
    """Refuses a broker while a different incarnation of the same id may still be alive. In two cases the old
    incarnation is certainly dead, so that a killed broker can register at once:

    - It is the broker of this very node, and has sent nothing since this node became the active controller.
    - It has the same log directories as the new incarnation: a server locks its directories while it lives.
    """
    if existing is None:
        return
    if request.broker_id == state.settings.node_id and request.broker_id not in state.sessions:
        return
    if request.log_dirs and set(request.log_dirs) == set(existing.directories):
        return
    if existing.incarnation_id != request.incarnation_id and session_valid(state, request.broker_id):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )


def _check_directories(state: ControllerState, request: BrokerRegistrationRequest) -> None:
    if state.image.metadata_version < DIRECTORY_ASSIGNMENT_SINCE:
        return
    directories = request.log_dirs
    if not directories:
        raise _invalid_registration("No directories specified in request")
    if any(int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES for directory in directories):
        raise _invalid_registration("Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise _invalid_registration("Duplicate directory ID in request")
    for broker in state.image.brokers.values():
        for directory in directories:
            if broker.id != request.broker_id and directory in broker.directories:
                raise _invalid_registration(
                    f"Broker {broker.id} is already registered with directory {uuid_to_str(directory)}"
                )


def _check_features(state: ControllerState, request: BrokerRegistrationRequest) -> None:
    """Every finalized feature above 0 must be in the broker's range; an unnamed feature has the range 0-0."""
    ranges = {f.name: Range(f.min_supported_version, f.max_supported_version) for f in request.features}
    if METADATA_VERSION not in ranges:
        raise _invalid_registration("Request features do not contain 'metadata.version'")
    finalized = {**state.image.features, METADATA_VERSION: state.image.metadata_version}
    for name in [*ranges, *(name for name in finalized if name not in ranges)]:
        supported = ranges.get(name, Range(0, 0))
        level = finalized.get(name, 0)
        if level not in supported:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {supported.low} and {supported.high}, inclusive.",
            )


def _cleanup_of_old_incarnation(
    state: ControllerState,
    request: BrokerRegistrationRequest,
    existing: BrokerRegistration | None,
    context: ControllerRequestContext,
) -> list[Any]:
    """Without proof of a clean shutdown (the old epoch, KIP-966) the broker may have lost records, and leaves the
    ELRs.
    """
    clean = context.version < 3 or (existing is not None and existing.epoch == request.previous_broker_epoch)
    if clean or state.image.metadata_version < ELR_SINCE:
        return leader_and_isr_updates(state, partitions_with_isr(state, request.broker_id), remove=request.broker_id)
    affected = [*partitions_with_isr(state, request.broker_id), *partitions_with_elr(state, request.broker_id)]
    return list(leader_and_isr_updates(state, affected, unclean_shutdown=request.broker_id))


def heartbeat(
    state: ControllerState, request: BrokerHeartbeatRequest, _context: ControllerRequestContext
) -> Decision[Message, BrokerHeartbeatResponse]:
    broker = check_broker_epoch(state, request.broker_id, request.broker_epoch)
    session = _session(state, broker.id)
    records: list[Message] = []
    response = BrokerHeartbeatResponse(is_fenced=False)
    if broker.fenced:
        if request.want_shut_down:
            response.should_shut_down = response.is_fenced = True
        elif not request.want_fence and request.current_metadata_offset >= session.registration_offset:
            records += _unfence(state, broker)
        else:
            response.is_fenced = True
    elif broker.in_controlled_shutdown:
        if _may_shut_down(state, session):
            records += fence_broker(state, broker)
            response.should_shut_down = response.is_fenced = True
    elif request.want_fence or (request.want_shut_down and not has_leaderships(state, broker.id)):
        records += fence_broker(state, broker)
        response.is_fenced = True
        response.should_shut_down = request.want_shut_down
    elif request.want_shut_down:
        records += _begin_controlled_shutdown(state, broker)
        session.controlled_shutdown_offset = state.quorum.end_offset + len(records) - 1
    session.last_contact_ms = state.clock.monotonic_ms()
    session.metadata_offset = request.current_metadata_offset
    response.is_caught_up = request.current_metadata_offset >= session.registration_offset
    records += _directory_changes(state, broker, request)
    return Decision(response, records)


def _may_shut_down(state: ControllerState, session: BrokerSession) -> bool:
    """Every unfenced broker has seen the leaders move."""
    lowest = min(
        (other.metadata_offset for other_id, other in state.sessions.items() if _unfenced(state, other_id)),
        default=session.metadata_offset,
    )
    return session.controlled_shutdown_offset <= lowest


def _unfenced(state: ControllerState, broker_id: NodeId) -> bool:
    broker = state.image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def _unfence(state: ControllerState, broker: BrokerRegistration) -> list[Message]:
    state.want_balance()  # it may be in sync at once
    change = BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=UNFENCE)
    return [change, *leader_and_isr_updates(state, leaderless_partitions(state), add=broker.id)]


def fence_broker(state: ControllerState, broker: BrokerRegistration) -> list[Message]:
    """Remove the broker from every ISR, then fence it."""
    updates = leader_and_isr_updates(state, partitions_with_isr(state, broker.id), remove=broker.id)
    return [*updates, BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=FENCE)]


def _begin_controlled_shutdown(state: ControllerState, broker: BrokerRegistration) -> list[Message]:
    change = BrokerRegistrationChangeRecord(broker.id, broker.epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN)
    return [change, *leader_and_isr_updates(state, partitions_with_isr(state, broker.id), remove=broker.id)]


def _directory_changes(
    state: ControllerState, broker: BrokerRegistration, request: BrokerHeartbeatRequest
) -> list[Message]:
    """Directories that failed take their replicas offline; cordoned ones get no new replicas."""
    records: list[Message] = []
    failed = [directory for directory in broker.directories if directory in request.offline_log_dirs]
    if failed:
        affected = (entry for entry in all_partitions(state) if entry[2].directory(broker.id) in failed)
        records += leader_and_isr_updates(state, affected, remove=broker.id)
        online = [directory for directory in broker.directories if directory not in failed]
        records.append(BrokerRegistrationChangeRecord(broker.id, broker.epoch, log_dirs=online))
    cordoned: list[Uuid] | None = request.cordoned_log_dirs
    if cordoned is not None and tuple(cordoned) != broker.cordoned_directories:
        records.append(BrokerRegistrationChangeRecord(broker.id, broker.epoch, cordoned_log_dirs=cordoned))
    return records


def fence_stale_brokers(state: ControllerState) -> list[Message]:
    """Fence one broker whose session has run out; empty when there is none. Called on a timer."""
    for broker in state.image.brokers.values():
        own = broker.id == state.settings.node_id
        if not broker.fenced and not own and not session_valid(state, broker.id):
            return fence_broker(state, broker)
    return []


def session_valid(state: ControllerState, broker_id: NodeId) -> bool:
    session = _session(state, broker_id)
    return state.clock.monotonic_ms() - session.last_contact_ms < state.settings.broker_session_timeout_ms


def end_session(state: ControllerState, broker_id: NodeId) -> None:
    """The broker is dead; a new incarnation may register at once."""
    _session(state, broker_id).last_contact_ms = -math.inf


def _session(state: ControllerState, broker_id: NodeId) -> BrokerSession:
    """A broker without a heartbeat to this controller so far gets the full session time."""
    session = state.sessions.get(broker_id)
    if session is None:
        session = state.sessions[broker_id] = BrokerSession(state.clock.monotonic_ms())
    return session


def unregister_broker(
    state: ControllerState, request: UnregisterBrokerRequest, _context: ControllerRequestContext
) -> Decision[Message, UnregisterBrokerResponse]:
    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
        )
    affected = [*partitions_with_isr(state, broker.id), *partitions_with_elr(state, broker.id)]
    records: list[Message] = list(leader_and_isr_updates(state, affected, remove=broker.id))
    records.append(UnregisterBrokerRecord(broker.id, broker.epoch))
    return Decision(UnregisterBrokerResponse(), records)


def register_controller(
    state: ControllerState, request: ControllerRegistrationRequest, _context: ControllerRequestContext
) -> Decision[Message, ControllerRegistrationResponse]:
    del state
    if request.controller_id < 0:
        raise _invalid_registration(f"{request.controller_id} is not a node id")
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[ControllerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners],
        features=[
            ControllerFeature(f.name, f.min_supported_version, f.max_supported_version) for f in request.features
        ],
    )
    return Decision(ControllerRegistrationResponse(), [record])


def check_broker_epoch(state: ControllerState, broker_id: NodeId, epoch: int) -> BrokerRegistration:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
        )
    return broker


def _invalid_registration(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, message)
