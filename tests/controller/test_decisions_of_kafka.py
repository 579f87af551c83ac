"""The broker life cycle in a log that Apache Kafka wrote: from the image before a batch, we decide the same batch.

The golden log holds a registration, an unfencing, a session that ran out after kill -9, an unclean registration, the
election of the last known leader, a controlled shutdown, a clean registration and an election from the ELR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.controller.node import CLUSTER_ID, node_properties
from tests.raft.kafka_directories import copied, raft_node

from ottla.controller.brokers import fence_broker, heartbeat, register_broker
from ottla.controller.config_rules import ConfigRules
from ottla.controller.state import BrokerSession, ControllerRequestContext, ControllerSettings, ControllerState
from ottla.env.config.load import load
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.records import BrokerRegistrationChangeRecord, NoOpRecord, RegisterBrokerRecord, decode_frame
from ottla.metadata.replay import replay_all
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from ottla.protocol.primitives import Message
from ottla.raft.views import CommittedBatch
from ottla.runtime.clock import SystemClock, SystemRandom


@dataclass
class Quorum:
    end_offset: int = 0
    kraft_version: int = 0
    voters: Any = None
    described: Any = field(default=None)

    def describe(self) -> Any:
        return self.described


def state_before(tmp_path: Path, batches: list[CommittedBatch], base_offset: int) -> ControllerState:
    state = ControllerState(
        settings=ControllerSettings(cluster_id=CLUSTER_ID, node_id=1),
        rules=ConfigRules(load(node_properties(tmp_path))),
        quorum=Quorum(end_offset=base_offset),
        clock=SystemClock(),
        random=SystemRandom(),
    )
    for batch in batches:
        if batch.base_offset < base_offset:
            replay_all(state.image, MetadataDelta(), map(decode_frame, batch.frames))
    return state


@pytest.fixture
def batches(tmp_path: Path) -> list[CommittedBatch]:
    node = raft_node("static", copied("static", tmp_path))
    node.start()
    return list(node.committed(0))


def registration(record: RegisterBrokerRecord, previous_epoch: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=record.broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=record.incarnation_id,
        listeners=[Listener(e.name, e.host, e.port, e.security_protocol) for e in record.end_points],
        features=[Feature(f.name, f.min_supported_version, f.max_supported_version) for f in record.features],
        rack=record.rack,
        log_dirs=record.log_dirs,
        previous_broker_epoch=previous_epoch,
    )


def beat(state: ControllerState, *, shut_down: bool = False, cordoned: list[Any] | None = None) -> list[Message]:
    broker = state.image.brokers[1]
    state.sessions[1] = BrokerSession(0.0, metadata_offset=1000)
    request = BrokerHeartbeatRequest(1, broker.epoch, 1000, want_fence=False, want_shut_down=shut_down)
    request.cordoned_log_dirs = cordoned
    return heartbeat(state, request, ControllerRequestContext(version=2)).records


def decided(state: ControllerState, kafka: list[Message]) -> list[Message]:
    """What we write where Kafka wrote `kafka`; what was asked is read off its records."""
    last = kafka[-1]
    if isinstance(last, RegisterBrokerRecord):
        known = state.image.brokers.get(1)
        previous = known.epoch if known is not None and known.in_controlled_shutdown else -1
        return register_broker(state, registration(last, previous), ControllerRequestContext(version=4)).records
    change = next(record for record in kafka if isinstance(record, BrokerRegistrationChangeRecord))
    if change.in_controlled_shutdown:
        return beat(state, shut_down=True)
    if change.fenced == 1 and not state.image.brokers[1].in_controlled_shutdown:
        return fence_broker(state, state.image.brokers[1])
    if change.fenced == 1:
        return beat(state, shut_down=True)
    cordons = any(isinstance(r, BrokerRegistrationChangeRecord) and r.cordoned_log_dirs is not None for r in kafka)
    if not change.fenced:
        state.sessions[1] = BrokerSession(0.0, registration_offset=10**9)
        request = BrokerHeartbeatRequest(1, state.image.brokers[1].epoch, 0, want_fence=False)
        request.cordoned_log_dirs = []
        return heartbeat(state, request, ControllerRequestContext(version=2)).records
    return beat(state, cordoned=[] if cordons else None)


def test_the_whole_life_of_a_broker(tmp_path: Path, batches: list[CommittedBatch]) -> None:
    compared = 0
    for batch in batches:
        # Kafka's appends linger: a NoOp of its timer may share the batch.
        records = [decode_frame(frame) for frame in batch.frames]
        kafka = [record for record in records if not isinstance(record, NoOpRecord)]
        if not any(isinstance(r, (RegisterBrokerRecord, BrokerRegistrationChangeRecord)) for r in kafka):
            continue
        state = state_before(tmp_path, batches, batch.base_offset)
        assert decided(state, kafka) == kafka, f"at offset {batch.base_offset}"
        compared += 1
    assert compared == 13
