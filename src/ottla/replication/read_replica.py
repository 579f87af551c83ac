"""The replica that a consumer should read from (KIP-392): with a rack-aware replica.selector.class, a replica in its rack."""

from __future__ import annotations

from ottla.model.ids import NodeId, Offset
from ottla.replication.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_read_replica(partition: Partition, selector: str | None, rack: str, offset: Offset) -> NodeId:
    """The follower in `rack` that has `offset` and the highest end offset; -1 to read from the leader."""
    leader_state = partition.leader_state
    if leader_state is None or not rack or selector != RACK_AWARE:
        return -1
    context = partition.context
    own_broker = context.broker(context.node_id)
    if own_broker is not None and own_broker.rack == rack:
        return -1
    best: tuple[Offset, NodeId] | None = None
    for follower in leader_state.followers.values():
        broker = context.broker(follower.id)
        if broker is None or broker.fenced or broker.rack != rack:
            continue
        if follower.log_start_offset <= offset <= follower.log_end_offset:
            best = max(best or (-1, -1), (follower.log_end_offset, follower.id))
    return -1 if best is None else best[1]
