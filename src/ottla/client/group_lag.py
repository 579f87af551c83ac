"""How far a group is behind in a partition, in records and in seconds: one rule for every tool.

- A group continues at its committed offset.
- A partition that a member owns without a commit counts from the start of the partition. Such a lag is marked
  (`uncommitted`), because the broker does not have the member's reset policy.
- The lag in seconds is the age of the oldest record that the group has not read, by the timestamp of that record.

A node's `ottla_group_lag_seconds` follows the same rules.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.offsets import end_offsets
from ottla.client.topics import present_leaders
from ottla.model.errors import KafkaError
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.fetch_response import FetchResponse
from ottla.protocol.records_header import HEADER_BYTES, parse_header

Partition = tuple[str, int]
Place = tuple[Partition, int]
"""A partition and the offset of the first record that was not read."""
MAX_FETCHES = 64
"""Batches fetched from one leader in one look; the next look fetches the rest."""
MAX_TIMES = 50_000
_BY_NAME = 12
"""The last version of Fetch with names of topics instead of their ids."""
_NO_SESSION = -1


@dataclass(frozen=True, slots=True)
class ReadLag:
    records: int
    seconds: float | None
    """None when the time of the oldest record is not known."""
    at_least: bool = False
    uncommitted: bool = False
    """Some of the records are counted from the start of a partition, because the group has no commit there."""


def positions(
    committed: Mapping[Partition, int], owned: Iterable[Partition], starts: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Where the group continues: in partitions that it committed or owns."""
    return {**{where: starts[where] for where in owned if where in starts}, **committed}


class UnreadTimes:
    """Timestamps of the first unread records. A time is stored for as long as a group stays at its offset."""

    def __init__(self) -> None:
        self._times: dict[Place, int] = {}
        self._unreadable: set[Place] = set()
        """Places without an answer: they are tried again after all others."""

    def look(self, cluster: Cluster, leaders: Mapping[Partition, int], places: Iterable[Place]) -> dict[Place, int]:
        """Times in milliseconds; without the places whose batch could not be read (yet)."""
        unread = set(places)
        self._times = {place: time for place, time in self._times.items() if place in unread}
        self._unreadable &= unread
        fetches: dict[int, int] = {}
        for place in sorted(unread - self._times.keys(), key=lambda place: (place in self._unreadable, place)):
            leader = leaders.get(place[0])
            if leader is None or fetches.get(leader, 0) >= MAX_FETCHES or len(self._times) >= MAX_TIMES:
                continue
            fetches[leader] = fetches.get(leader, 0) + 1
            try:
                time_ms = first_time(cluster, leader, place)
            except ClientError:  # the leader is gone: the next look knows its successor
                fetches[leader] = MAX_FETCHES
                continue
            except KafkaError:
                time_ms = None
            if time_ms is None:
                self._unreadable.add(place)
            else:
                self._times[place] = time_ms
        return dict(self._times)


def first_time(cluster: Cluster, leader: int, place: Place) -> int | None:
    """The timestamp of the first record from an offset on, as far as the header of its batch has the time."""
    (topic, index), offset = place
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        session_epoch=_NO_SESSION,
        topics=[FetchTopic(topic, partitions=[FetchPartition(index, fetch_offset=offset, partition_max_bytes=1)])],
    )
    answer = cluster.node_attempt(leader, request, FetchResponse, _BY_NAME)
    for row in (row for topic_row in answer.responses for row in topic_row.partitions):
        records = row.records or b""
        if not row.error_code and len(records) >= HEADER_BYTES:
            batch = parse_header(records, 0)
            time_ms = batch.time_from(offset)
            return time_ms if time_ms >= 0 else None
    return None


def partition_lags(
    cluster: Cluster, committed: Mapping[Partition, int], owned: Iterable[Partition]
) -> dict[Partition, tuple[int, ReadLag]]:
    """The end of each partition and the lag of one group; without partitions whose leader does not answer."""
    without_commit = set(owned) - committed.keys()
    ends = end_offsets(cluster, {*committed, *without_commit})
    starts = end_offsets(cluster, without_commit, earliest=True)
    places = {where: offset for where, offset in positions(committed, without_commit, starts).items() if where in ends}
    behind = [(where, offset) for where, offset in places.items() if offset < ends[where]]
    leaders = present_leaders(cluster, {topic for (topic, _), _ in behind}) if behind else {}
    first = end_offsets(cluster, {where for where, _ in behind}, earliest=True)
    unread = {where: max(offset, first.get(where, 0)) for where, offset in behind}
    times, now_s = UnreadTimes().look(cluster, leaders, unread.items()), time.time()
    lags = {}
    for where, offset in places.items():
        records, since_ms = max(0, ends[where] - offset), times.get((where, unread.get(where, offset)))
        seconds = 0.0 if not records else None if since_ms is None else max(0.0, round(now_s - since_ms / 1000, 3))
        lags[where] = ends[where], ReadLag(records, seconds, uncommitted=where not in committed)
    return lags
