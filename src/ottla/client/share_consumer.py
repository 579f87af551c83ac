"""A member of a share group (KIP-932): heartbeats, share fetches from leaders, acknowledgements with the next fetch.

Synchronous and small, for the console tool. A record that is polled and not acknowledged goes back when the session ends.
The assignment and the leaders change while a member reads: each fetch brings the session of its broker up to date.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import CallTimeout, ConnectionFailed, check
from ottla.client.share_session import ACCEPT, GAP, LAST_EPOCH, REJECT, RELEASE, ConsumerShareSession, Place
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import new_uuid, uuid_to_str
from ottla.protocol.generated.share_acknowledge_response import ShareAcknowledgeResponse
from ottla.protocol.generated.share_fetch_response import PartitionData, ShareFetchResponse
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.protocol.generated.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from ottla.protocol.records_header import LOG_APPEND_TIME, iterate_batches
from ottla.protocol.records_walk import iterate_records

__all__ = ["ACCEPT", "REJECT", "RELEASE", "ShareConsumer", "ShareRecord"]

_PAUSE_S = 0.1
_LONGEST_HEARTBEAT_S = 3.0
_JOINING_S = 0.2
_SESSION_LOST = frozenset({
    ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED,
})  # fmt: skip
_MEMBER_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


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
    node: int
    """The broker that has given the record; it takes the acknowledgement."""


class LeaderEpoch(NamedTuple):
    epoch: int
    node: int


class ShareConsumer:
    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._cluster, self._group, self._topic = cluster, group, topic
        self._member = uuid_to_str(new_uuid(os.urandom))
        self._epoch = 0
        self._assigned: list[Place] = []
        self._leaders: dict[Place, LeaderEpoch] = {}
        self._leaders_outdated = False
        self._sessions: dict[int, ConsumerShareSession] = {}
        self._next_heartbeat = 0.0

    def poll(self, limit: int) -> list[ShareRecord]:
        """What the leaders of our partitions give us now, at most `limit` records."""
        self._heartbeat()
        if self._leaders_outdated or any(place not in self._leaders for place in self._assigned):
            self._find_leaders()
        led: dict[int, list[Place]] = {}
        for place in self._assigned:
            if place in self._leaders:
                led.setdefault(self._leaders[place].node, []).append(place)
        for node in sorted(self._sessions.keys() - led.keys()):
            self._end_session(node)
        records: list[ShareRecord] = []
        for node, places in sorted(led.items()):
            if len(records) < limit:
                records += self._fetch(node, places, limit - len(records))
        if not records and (self._leaders_outdated or not led):
            time.sleep(_PAUSE_S)
        return records

    def acknowledge(self, record: ShareRecord, kind: int) -> None:
        """Sent to the broker with the next fetch, or when the session ends; nothing if the session was lost."""
        if record.node in self._sessions:
            self._sessions[record.node].acknowledge(record.place, record.offset, kind)

    def close(self) -> None:
        for node in list(self._sessions):
            self._end_session(node)
        self._send_heartbeat(LAST_EPOCH, None)

    # ------------------------------------------------------------------------------------------------- membership

    def _heartbeat(self) -> None:
        if time.monotonic() < self._next_heartbeat:
            return
        answer = self._send_heartbeat(self._epoch, [self._topic] if self._epoch == 0 else None)
        if self._epoch and answer.error_code in _MEMBER_LOST:
            self._epoch, self._assigned = 0, []
            return
        check(answer.error_code, answer.error_message)
        self._epoch = answer.member_epoch
        wait = answer.heartbeat_interval_ms / 1000 if self._assigned else _JOINING_S
        self._next_heartbeat = time.monotonic() + min(wait, _LONGEST_HEARTBEAT_S)
        if answer.assignment is not None:
            self._assigned = [
                (row.topic_id, number) for row in answer.assignment.topic_partitions for number in row.partitions
            ]
            self._leaders_outdated = True

    def _send_heartbeat(self, epoch: int, topics: list[str] | None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(self._group, self._member, epoch, None, topics)
        return self._cluster.coordinator_call(
            "shareGroupHeartbeat", self._group, request, ShareGroupHeartbeatResponse, lambda a: a.error_code
        )

    # ---------------------------------------------------------------------------------------------------- leaders

    def _find_leaders(self) -> None:
        self._leaders = {place: leader for place, leader in self._leaders.items() if place in self._assigned}
        for topic in self._cluster.describe("shareFetch", [self._topic]).topics:
            for row in topic.partitions:
                self._note_leader((topic.topic_id, row.partition_index), LeaderEpoch(row.leader_epoch, row.leader_id))
        self._leaders_outdated = False

    def _note_leader(self, place: Place, leader: LeaderEpoch) -> bool:
        """Whether this is news; a broker that lags behind the others names an earlier leader."""
        if place not in self._assigned or leader.node < 0 or leader <= self._leaders.get(place, LeaderEpoch(-1, -1)):
            return False
        self._leaders[place] = leader
        return True

    # ----------------------------------------------------------------------------------------------------- records

    def _fetch(self, node: int, places: list[Place], limit: int) -> list[ShareRecord]:
        session = self._sessions.setdefault(node, ConsumerShareSession(self._group, self._member))
        try:
            if session.epoch and session.has_marks_beside(places):
                request = session.acknowledgements(last=False)
                settled = self._cluster.node_attempt(node, request, ShareAcknowledgeResponse)
                if not self._taken(node, session, settled.error_code, settled.error_message):
                    return []
            answer = self._cluster.node_attempt(node, session.fetch(places, limit), ShareFetchResponse)
        except (ConnectionFailed, CallTimeout):
            self._lose(node)
            return []
        if not self._taken(node, session, answer.error_code, answer.error_message):
            return []
        return [
            record
            for topic in answer.responses
            for row in topic.partitions
            for record in self._records(node, session, (topic.topic_id, row.partition_index), row)
        ]

    def _taken(self, node: int, session: ConsumerShareSession, code: int, message: str | None) -> bool:
        """Whether the broker took a request of the session; a session that it has lost is opened again."""
        if code in _SESSION_LOST:
            self._lose(node)
            return False
        check(code, message)
        session.taken()
        return True

    def _lose(self, node: int) -> None:
        """The session is over without a word from us: the broker takes its records back."""
        self._sessions.pop(node, None)
        self._leaders_outdated = True

    def _end_session(self, node: int) -> None:
        session = self._sessions.pop(node)
        if session.epoch:
            with suppress(ConnectionFailed, CallTimeout):  # a broker that is gone has lost the session already
                self._cluster.node_attempt(node, session.acknowledgements(last=True), ShareAcknowledgeResponse)

    def _records(
        self, node: int, session: ConsumerShareSession, place: Place, row: PartitionData
    ) -> Iterator[ShareRecord]:
        if row.error_code:
            reason = KafkaError(ErrorCode(row.error_code), row.error_message)
            if not reason.code.retriable:
                raise reason
            leader = LeaderEpoch(row.current_leader.leader_epoch, row.current_leader.leader_id)
            if not self._note_leader(place, leader):
                self._leaders_outdated = True
            return
        data = b"" if row.records is None else bytes(row.records)
        acquired = {
            offset: span.delivery_count
            for span in row.acquired_records
            for offset in range(span.first_offset, span.last_offset + 1)
        }
        end = -1
        for position, header in iterate_batches(data):
            end = header.last_offset
            if header.is_control:
                continue
            kind = "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime"
            for record in iterate_records(data, position):
                if (delivery := acquired.pop(record.offset, None)) is not None:
                    yield ShareRecord(
                        place, record.offset, self._topic, kind, record.timestamp, record.key, record.value, record.headers, delivery, node
                    )  # fmt: skip
        for offset in acquired:
            if offset <= end:
                session.acknowledge(place, offset, GAP)
