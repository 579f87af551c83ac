"""The voter set: ids, directory ids and endpoints of the voters. A value; a change creates a new set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model.ids import ZERO_UUID, NodeId, Uuid, uuid_to_str
from ottla.protocol.generated.voters_record import Endpoint, KRaftVersionFeature, VotersRecord
from ottla.protocol.generated.voters_record import Voter as VoterRecord


class ReplicaKey(NamedTuple):
    """A replica is a node with its directory: the same node on a new disk is a different replica."""

    id: NodeId
    directory_id: Uuid = ZERO_UUID
    """Zero while it is unknown: static voters, and requests of older versions."""

    def __str__(self) -> str:
        """As in Kafka's responses."""
        return f"ReplicaKey(id={self.id}, directoryId={uuid_to_str(self.directory_id)})"

    def matches(self, other: ReplicaKey) -> bool:
        if self.id != other.id:
            return False
        return ZERO_UUID in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id


@dataclass(frozen=True, slots=True)
class VoterEndpoint:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    id: NodeId
    directory_id: Uuid = ZERO_UUID
    """Zero for static voters (kraft.version 0)."""
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, 1)
    key: ReplicaKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ReplicaKey(self.id, self.directory_id))


@dataclass(frozen=True, slots=True)
class VoterSet:
    voters: tuple[Voter, ...]
    _by_id: dict[NodeId, Voter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {voter.id: voter for voter in reversed(self.voters)})

    @property
    def ids(self) -> list[NodeId]:
        return [voter.id for voter in self.voters]

    def get(self, node_id: NodeId) -> Voter | None:
        return self._by_id.get(node_id)

    def contains(self, node_id: NodeId, directory_id: Uuid) -> bool:
        """A voter with a directory id matches only that directory: a replaced disk is a different voter."""
        voter = self.get(node_id)
        return voter is not None and voter.directory_id in (ZERO_UUID, directory_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """A set in which `voter` replaces the voter with its id, or is added."""
        voters = tuple(voter if member.id == voter.id else member for member in self.voters)
        return VoterSet(voters if self.get(voter.id) else (*voters, voter))

    def without(self, node_id: NodeId) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.id != node_id))

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VoterRecord(
                    voter.id,
                    voter.directory_id,
                    [Endpoint(e.name, e.host, e.port) for e in voter.endpoints],
                    KRaftVersionFeature(*voter.kraft_versions),
                )
                for voter in self.voters
            ],
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls(
            tuple(
                Voter(
                    voter.voter_id,
                    voter.voter_directory_id,
                    tuple(VoterEndpoint(e.name, e.host, e.port) for e in voter.endpoints),
                    (
                        voter.k_raft_version_feature.min_supported_version,
                        voter.k_raft_version_feature.max_supported_version,
                    ),
                )
                for voter in record.voters
            )
        )
