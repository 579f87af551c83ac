"""The settings of a replica of the quorum: its identity, the addresses of the voters, timeouts and limits."""

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
    """A request with a different cluster id is refused; the empty id accepts all (tools that only read files)."""
    controller: bool = True
    """process.roles has controller: the replica may vote and lead. A broker without that role only follows."""
    static_voters: VoterSet | None = None
    """controller.quorum.voters; None for a quorum that was formatted with its voters (kraft.version 1)."""
    bootstrap_servers: tuple[Address, ...] = ()
    """controller.quorum.bootstrap.servers"""
    endpoints: tuple[VoterEndpoint, ...] = ()
    """The addresses of this replica for the other voters."""
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
