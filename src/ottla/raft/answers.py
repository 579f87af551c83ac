"""Checks that all quorum requests share, and fields that all quorum responses share."""

from __future__ import annotations

from typing import Any, TypeVar

from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_NODE, NodeId, Uuid
from ottla.raft.config import Address
from ottla.raft.replica import Replica
from ottla.raft.roles import Candidate, Follower, Leader, Observer
from ottla.raft.voters import ReplicaKey

Endpoint = TypeVar("Endpoint")


def wrong_cluster(replica: Replica, cluster_id: str | None) -> bool:
    return bool(cluster_id and replica.config.cluster_id and cluster_id != replica.config.cluster_id)


def wrong_voter(replica: Replica, voter_id: NodeId, directory_id: Uuid) -> bool:
    """Whether the request names a different node, or this node with a directory that has been replaced."""
    return voter_id >= 0 and not ReplicaKey(voter_id, directory_id).matches(replica.key)


def unusable_leader(replica: Replica, leader_id: NodeId, epoch: int) -> bool:
    """Whether a request names a leader that this replica cannot follow: no node id, an epoch out of reach, or a second
    leader of an epoch that has one.
    """
    return leader_id < 0 or replica.out_of_reach(epoch) or replica.contradicts(epoch, leader_id)


def metadata_partition(request: Any) -> Any | None:
    """The single partition of a quorum request; None when the request names a different partition or several."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic, partition = request.topics[0], request.topics[0].partitions[0]
    name = getattr(topic, "topic_name", None) or getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name != METADATA_TOPIC and getattr(topic, "topic_id", None) != METADATA_TOPIC_ID:
        return None
    names = ("partition_index", "partition", "index")
    index = next((getattr(partition, name) for name in names if hasattr(partition, name)), None)
    return partition if index == 0 else None


def known_leader(replica: Replica) -> tuple[NodeId, Address | None]:
    """The id and address of the epoch's leader; NO_NODE or None where this replica has not learned them."""
    role = replica.role
    if isinstance(role, Leader):
        endpoints = replica.config.endpoints
        own_address = Address(endpoints[0].host, endpoints[0].port) if endpoints else None
        return role.leader_id, replica.address_of(role.leader_id) or own_address
    if isinstance(role, Candidate):
        return NO_NODE, None
    if isinstance(role, Follower | Observer) and role.leader is not None:
        return role.leader_id, role.leader
    return role.leader_id, replica.address_of(role.leader_id)


def leader_endpoints(replica: Replica, endpoint: type[Endpoint]) -> list[Endpoint]:
    leader_id, address = known_leader(replica)
    return [] if address is None else [endpoint(leader_id, address.host, address.port)]  # type: ignore[call-arg]  # every NodeEndpoint begins with these fields


def hinted_address(leader_id: NodeId, endpoints: list[Any]) -> Address | None:
    """The address of the leader in the endpoints of a response."""
    return next((Address(e.host, e.port) for e in endpoints if e.node_id == leader_id), None)


def epoch_error(replica: Replica, epoch: int) -> ErrorCode:
    """For a request that only the leader of `epoch` can answer."""
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > replica.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(replica.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER
