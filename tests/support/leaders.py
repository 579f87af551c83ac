"""Whether a node that has just started takes requests for the partitions that it leads.

Apache Kafka's metadata lists a node and its partitions as soon as it has heard of itself; its replicas become leaders a
moment later, and say NOT_LEADER_OR_FOLLOWER until then. Real clients try again; raw requests would not.
"""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.generated.metadata_response import MetadataResponse
from ottla.protocol.primitives import Message
from tests.support.frames import RawConnection

LATEST = -1
NOT_YET = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def leads_its_partitions(port: int, node_id: int) -> bool:
    try:
        with RawConnection("127.0.0.1", port, timeout=5) as connection:
            metadata, _ = MetadataResponse.decode(_ask(connection, MetadataRequest(None, False), 12), 0, 12)
            wanted = []
            for topic in metadata.topics:
                led = [p.partition_index for p in topic.partitions if p.leader_id == node_id]
                if led and topic.name is not None:
                    wanted.append(ListOffsetsTopic(topic.name, [ListOffsetsPartition(i, -1, LATEST) for i in led]))
            if not wanted:
                return True
            answer, _ = ListOffsetsResponse.decode(_ask(connection, ListOffsetsRequest(-1, 0, wanted), 7), 0, 7)
    except (OSError, EOFError):
        return False
    return not any(p.error_code in NOT_YET for topic in answer.topics for p in topic.partitions)


def _ask(connection: RawConnection, request: Message, version: int) -> bytes:
    body = connection.request(request.API_KEY, version, request.to_bytes(version), flexible=True)
    if body is None:
        raise ConnectionError("closed")
    return body[1:]
