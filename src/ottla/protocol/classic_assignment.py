"""The assignment of a member by the classic protocol: bytes that the leader of a group made and that brokers only store."""

from __future__ import annotations

from ottla.protocol.generated.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.protocol.primitives import DecodeError

_VERSION_BYTES = 2


def partitions_of_assignment(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """Topic and partition; empty for a different format. The fields of version 0 are a prefix of every later version."""
    if len(assignment) < _VERSION_BYTES:
        return ()
    try:
        decoded, _ = ConsumerProtocolAssignment.decode(assignment, _VERSION_BYTES, 0)
    except DecodeError:
        return ()
    return tuple((topic.topic, partition) for topic in decoded.assigned_partitions for partition in topic.partitions)
