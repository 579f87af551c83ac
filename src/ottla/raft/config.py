"""What a replica of the quorum is told: who it is, where the others are, how long it waits for what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model.ids import NodeId, Uuid
from ottla.raft.metadata_log import MetadataLogConfig
from ottla.raft.snapshot_store import SnapshotRetention
from ottla.raft.voters import VoterEndpoint, VoterSet


class Address(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    node_id: NodeId
    directory_id: Uuid
    cluster_id: str = ""
    """Requests that name another cluster are refused; empty accepts all (tools that only read files)."""
    controller: bool = True
    """process.roles has controller: it may vote and lead. A broker alone only follows."""
    static_voters: VoterSet | None = None
    """controller.quorum.voters; None for a quorum that was formatted with its voters (kraft.version 1)."""
    bootstrap_servers: tuple[Address, ...] = ()
    """controller.quorum.bootstrap.servers"""
    endpoints: tuple[VoterEndpoint, ...] = ()
    """Where other voters reach this one."""
    auto_join: bool = False
    """controller.quorum.auto.join.enable"""
    election_timeout_ms: float = 1_000
    """controller.quorum.election.timeout.ms"""
    election_backoff_max_ms: float = 1_000
    """controller.quorum.election.backoff.max.ms"""
    fetch_timeout_ms: float = 2_000
    """controller.quorum.fetch.timeout.ms"""
    request_timeout_ms: float = 2_000
    """controller.quorum.request.timeout.ms"""
    retry_backoff_ms: float = 20
    """controller.quorum.retry.backoff.ms"""
    fetch_max_bytes: int = 1 << 20
    """controller.quorum.fetch.max.bytes"""
    fetch_snapshot_max_bytes: int = 1 << 20
    """controller.quorum.fetch.snapshot.max.bytes"""
    log: MetadataLogConfig = field(default_factory=MetadataLogConfig)
    retention: SnapshotRetention = field(default_factory=SnapshotRetention)
