"""What this node says of itself: its settings as the controller and the quorum want them, its registrations.

The requests are those that a broker sends over the wire; a node that is its own controller submits them directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.controller.state import ControllerSettings
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.model.ids import Uuid
from ottla.protocol.generated.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from ottla.protocol.generated.controller_registration_request import ControllerRegistrationRequest
from ottla.protocol.generated.controller_registration_request import Feature as ControllerFeature
from ottla.protocol.generated.controller_registration_request import Listener as ControllerListener
from ottla.raft.config import RaftConfig
from ottla.raft.metadata_log import MetadataLogConfig
from ottla.raft.snapshot_store import SnapshotRetention
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet


def controller_settings(config: BrokerConfig, cluster_id: str) -> ControllerSettings:
    return ControllerSettings(
        cluster_id=cluster_id,
        node_id=config.node_id,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        delete_topic_enable=config.delete_topic_enable,
        broker_session_timeout_ms=config.broker_session_timeout_ms,
    )


def raft_config(config: BrokerConfig, directory_id: Uuid) -> RaftConfig:
    listener = config.controller_listener_names[0] if config.controller_listener_names else "CONTROLLER"
    static = tuple(
        Voter(node_id, endpoints=(VoterEndpoint(listener, host, port),))
        for node_id, (host, port) in config.voters.items()
    )
    return RaftConfig(
        node_id=config.node_id,
        directory_id=directory_id,
        static_voters=VoterSet(static) if static else None,
        log=MetadataLogConfig(
            segment_bytes=config.internal_metadata_log_segment_bytes or config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
        ),
        retention=SnapshotRetention(
            max_record_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            retention_bytes=config.metadata_max_retention_bytes,
            retention_ms=config.metadata_max_retention_ms,
        ),
    )


def broker_registration(
    config: BrokerConfig,
    *,
    cluster_id: str,
    incarnation_id: Uuid,
    directories: Iterable[Uuid],
    previous_broker_epoch: int,
    host: str,
    ports: Mapping[str, int] | None = None,
) -> BrokerRegistrationRequest:
    """`host` stands in where a listener names none, `ports` (by listener name) where a listener took a free port."""
    listeners = config.advertised_broker_listeners
    return BrokerRegistrationRequest(
        broker_id=config.node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        listeners=[Listener(*_reachable(endpoint, host, ports or {})) for endpoint in listeners],
        features=[Feature(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())],
        rack=config.broker_rack,
        log_dirs=list(directories),
        previous_broker_epoch=previous_broker_epoch,
    )


def controller_registration(
    config: BrokerConfig, *, incarnation_id: Uuid, host: str, ports: Mapping[str, int] | None = None
) -> ControllerRegistrationRequest:
    listeners = config.advertised_controller_listeners
    return ControllerRegistrationRequest(
        controller_id=config.node_id,
        incarnation_id=incarnation_id,
        listeners=[ControllerListener(*_reachable(endpoint, host, ports or {})) for endpoint in listeners],
        features=[ControllerFeature(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())],
    )


def _reachable(endpoint: Endpoint, host: str, ports: Mapping[str, int]) -> tuple[str, str, int, int]:
    port = endpoint.port or ports.get(endpoint.listener_name, 0)
    protocol = SECURITY_PROTOCOLS.index(endpoint.security_protocol)
    return endpoint.listener_name, endpoint.host or host, port, protocol
