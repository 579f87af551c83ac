"""A member of a share group (KIP-932): heartbeats, share fetches from leaders, acknowledgements with the next fetch.

Synchronous and small, for the console tool. A record that is polled and not acknowledged goes back when the session ends.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.client.topics import list_topics
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid, new_uuid, uuid_to_str
from ottla.protocol.generated.share_acknowledge_request import (
    AcknowledgementBatch as FinalBatch,
)
from ottla.protocol.generated.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.generated.share_acknowledge_response import ShareAcknowledgeResponse
from ottla.protocol.generated.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from ottla.protocol.generated.share_fetch_response import PartitionData, ShareFetchResponse
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.protocol.generated.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from ottla.protocol.records_header import LOG_APPEND_TIME, iterate_batches
from ottla.protocol.records_walk import iterate_records

ACCEPT, RELEASE, REJECT = 1, 2, 3
Place = tuple[Uuid, int]


class ShareRecord(NamedTuple):
    place: Place
    offset: int
    topic: str
    timestamp_type: str
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery: int


class ShareConsumer:
    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._cluster, self._group, self._topic = cluster, group, topic
        self._member = uuid_to_str(new_uuid(os.urandom))
        self._epoch = 0
        self._assigned: list[Place] = []
        self._leaders: dict[Place, int] = {}
        self._sessions: dict[int, int] = {}
        self._pending: dict[int, dict[Place, list[tuple[int, int]]]] = {}
        self._next_heartbeat = 0.0

    def poll(self, limit: int) -> list[ShareRecord]:
        """What the leaders of our partitions give us now, at most `limit` records."""
        self._heartbeat()
        if not self._assigned:
            time.sleep(0.1)
            return []
        found: list[ShareRecord] = []
        for node in sorted(set(self._leaders.values())):
            if len(found) < limit:
                found += self._fetch(node, limit - len(found))
        return found

    def acknowledge(self, record: ShareRecord, kind: int) -> None:
        """Told to the leader with the next fetch, or when the session ends."""
        node = self._leaders[record.place]
        self._pending.setdefault(node, {}).setdefault(record.place, []).append((record.offset, kind))

    def close(self) -> None:
        for node, epoch in self._sessions.items():
            rows: dict[Uuid, list[AcknowledgePartition]] = {}
            for (topic, partition), marks in self._pending.pop(node, {}).items():
                batches = [FinalBatch(offset, offset, [kind]) for offset, kind in marks]
                rows.setdefault(topic, []).append(AcknowledgePartition(partition, batches))
            topics = [AcknowledgeTopic(topic, listed) for topic, listed in rows.items()]
            request = ShareAcknowledgeRequest(self._group, self._member, epoch if topics else -1, topics=topics)
            self._cluster.node_call("shareAcknowledge", node, request, ShareAcknowledgeResponse)
            if topics:
                end = ShareAcknowledgeRequest(self._group, self._member, -1)
                self._cluster.node_call("shareAcknowledge", node, end, ShareAcknowledgeResponse)
        self._send_heartbeat(-1, None)

    def _heartbeat(self) -> None:
        if time.monotonic() < self._next_heartbeat:
            return
        answer = self._send_heartbeat(self._epoch, [self._topic] if self._epoch == 0 else None)
        check(answer.error_code, answer.error_message)
        self._epoch = answer.member_epoch
        wait = answer.heartbeat_interval_ms / 1000 if self._assigned else 0.2
        self._next_heartbeat = time.monotonic() + min(wait, 3)
        if answer.assignment is not None:
            self._assigned = [
                (row.topic_id, one) for row in answer.assignment.topic_partitions for one in row.partitions
            ]
            self._find_leaders()

    def _send_heartbeat(self, epoch: int, topics: list[str] | None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(self._group, self._member, epoch, None, topics)
        return self._cluster.coordinator_call(
            "shareGroupHeartbeat", self._group, request, ShareGroupHeartbeatResponse, lambda a: a.error_code
        )

    def _find_leaders(self) -> None:
        known = {
            (topic.topic_id, row.partition_index): row.leader_id
            for topic in list_topics(self._cluster)
            for row in topic.partitions
        }
        self._leaders = {place: known[place] for place in self._assigned if known.get(place, -1) >= 0}

    def _fetch(self, node: int, limit: int) -> list[ShareRecord]:
        pending = self._pending.pop(node, {})
        first = node not in self._sessions
        rows: dict[Uuid, list[FetchPartition]] = {}
        for place in self._assigned if first else pending:
            if self._leaders.get(place) == node:
                batches = [AcknowledgementBatch(offset, offset, [kind]) for offset, kind in pending.get(place, [])]
                rows.setdefault(place[0], []).append(FetchPartition(place[1], 1 << 20, batches))
        request = ShareFetchRequest(
            self._group, self._member, self._sessions.get(node, 0), 400, 1, 1 << 24, limit, min(limit, 500),
            topics=[FetchTopic(topic, listed) for topic, listed in rows.items()],
        )  # fmt: skip
        answer = self._cluster.node_call("shareFetch", node, request, ShareFetchResponse)
        if answer.error_code in {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}:
            del self._sessions[node]
            return []
        check(answer.error_code, answer.error_message)
        self._sessions[node] = self._sessions.get(node, 0) + 1
        return [
            record
            for topic in answer.responses
            for row in topic.partitions
            for record in self._records((topic.topic_id, row.partition_index), row)
        ]

    def _records(self, place: Place, row: PartitionData) -> list[ShareRecord]:
        if row.error_code:
            if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._find_leaders()
                return []
            raise KafkaError(ErrorCode(row.error_code), row.error_message)
        data = bytes(row.records or b"")
        acquired = {
            offset: span.delivery_count
            for span in row.acquired_records
            for offset in range(span.first_offset, span.last_offset + 1)
        }
        found = []
        for position, header in iterate_batches(data):
            if header.is_control:
                continue
            kind = "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime"
            found += [
                ShareRecord(
                    place,
                    one.offset,
                    self._topic,
                    kind,
                    one.timestamp,
                    one.key,
                    one.value,
                    one.headers,
                    acquired[one.offset],
                )
                for one in iterate_records(data, position)
                if one.offset in acquired
            ]
        return found
