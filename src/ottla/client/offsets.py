"""Offsets of partitions: by time, from the leaders, and the deletion of what lies before them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.errors import error_of
from ottla.client.topics import leaders_of, present_leaders
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import EARLIEST, LATEST

Partition = tuple[str, int]
Found = TypeVar("Found")
_SOON_S = 5.0
_ASKED_ANEW = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE}
)
"""The leader moved, was just elected, or does not have the high watermark of the leader before it yet (KIP-207)."""


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


def list_offsets(
    cluster: Cluster,
    positions: Mapping[Partition, int],
    *,
    read_committed: bool = False,
    patience_s: float | None = None,
    leaderless: bool = False,
) -> dict[Partition, FoundOffset | KafkaError]:
    """Offsets by timestamp or one of the names above; a partition that its leader refuses has the error.

    Partitions whose leader moved are asked again, for up to `patience_s` (default: `api_timeout_ms`). With `leaderless`,
    a partition without a leader has an error at once; without, the call waits for a leader.
    """

    def ask(some: Mapping[Partition, int]) -> dict[Partition, FoundOffset | KafkaError]:
        def attempt(deadline: float) -> dict[Partition, FoundOffset | KafkaError]:
            del deadline  # each call below has its own
            find = present_leaders if leaderless else leaders_of
            leaders = find(cluster, {topic for topic, _ in some})
            return _ask(cluster, some, leaders, read_committed=read_committed)

        return cluster.retried("listOffsets", attempt)

    return _retried_while_leaders_move(cluster, positions, ask, patience_s) if positions else {}


def _retried_while_leaders_move(
    cluster: Cluster,
    positions: Mapping[Partition, int],
    ask: Callable[[Mapping[Partition, int]], dict[Partition, Found]],
    patience_s: float | None = None,
) -> dict[Partition, Found]:
    deadline = time.monotonic() + (cluster.settings.api_timeout_ms / 1000 if patience_s is None else patience_s)
    pause_s = cluster.settings.retry_backoff_ms / 1000
    offsets = ask(positions)
    while moved := {where: offset for where, offset in positions.items() if _moved(offsets.get(where))}:
        if time.monotonic() + pause_s >= deadline:
            break
        time.sleep(pause_s)
        offsets.update(ask(moved))
    return offsets


def _moved(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.code in _ASKED_ANEW


def _ask(
    cluster: Cluster, positions: Mapping[Partition, int], leaders: Mapping[Partition, int], *, read_committed: bool
) -> dict[Partition, FoundOffset | KafkaError]:
    from ottla.protocol.generated.list_offsets_request import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )
    from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse

    offsets: dict[Partition, FoundOffset | KafkaError] = {}
    by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
    for (topic, partition), timestamp in positions.items():
        leader = leaders.get((topic, partition))
        if leader is None:
            offsets[topic, partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        rows = by_leader.setdefault(leader, {}).setdefault(topic, [])
        rows.append(ListOffsetsPartition(partition, -1, timestamp))
    for leader, topics in by_leader.items():
        request = ListOffsetsRequest(
            -1,
            int(read_committed),
            [ListOffsetsTopic(name, rows) for name, rows in topics.items()],
            cluster.settings.request_timeout_ms,
        )
        answer = cluster.node_call(f"listOffsets on broker {leader}", leader, request, ListOffsetsResponse)
        for answered in answer.topics:
            for row in answered.partitions:
                where = (answered.name, row.partition_index)
                offsets[where] = (
                    error_of(row.error_code)
                    if row.error_code
                    else FoundOffset(row.offset, row.timestamp, row.leader_epoch)
                )
    return offsets


def offsets_or_raise(cluster: Cluster, positions: Mapping[Partition, int]) -> dict[Partition, FoundOffset]:
    offsets: dict[Partition, FoundOffset] = {}
    for where, answer in list_offsets(cluster, positions).items():
        if isinstance(answer, KafkaError):
            raise answer
        offsets[where] = answer
    return offsets


def end_offsets(cluster: Cluster, partitions: Iterable[Partition], *, earliest: bool = False) -> dict[Partition, int]:
    """Latest (or earliest) offsets of those partitions whose leader answers soon."""
    positions = dict.fromkeys(partitions, EARLIEST if earliest else LATEST)
    answers = list_offsets(cluster, positions, patience_s=_SOON_S, leaderless=True)
    return {where: answer.offset for where, answer in answers.items() if isinstance(answer, FoundOffset)}


def no_such_name(topic: str, partition: int) -> KafkaError:
    words = f"Failed to fetch metadata for partition {topic}-{partition} due to invalid topic `{topic}`"
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, words)


def delete_records(cluster: Cluster, before: Mapping[Partition, int]) -> dict[Partition, int | KafkaError]:
    """Delete up to these offsets (-1: up to the high watermark); the new low watermark of each, or its error.

    Partitions whose leader moved, or was just elected, are asked again.
    """
    return _retried_while_leaders_move(cluster, before, lambda some: _delete_records(cluster, some))


def _delete_records(cluster: Cluster, before: Mapping[Partition, int]) -> dict[Partition, int | KafkaError]:
    from ottla.protocol.generated.delete_records_request import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )
    from ottla.protocol.generated.delete_records_response import DeleteRecordsResponse

    low_watermarks: dict[Partition, int | KafkaError] = {}
    leaders: dict[Partition, int] = {}
    bad_names = set()
    for topic in cluster.describe("deleteRecords", {topic for topic, _ in before}).topics:
        leaders.update({(topic.name or "", row.partition_index): row.leader_id for row in topic.partitions})
        if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            bad_names.add(topic.name or "")
    by_leader: dict[int, dict[str, list[DeleteRecordsPartition]]] = {}
    for (name, partition), offset in before.items():
        leader = leaders.get((name, partition), -1)
        if name in bad_names:
            low_watermarks[name, partition] = no_such_name(name, partition)
        elif leader < 0:
            low_watermarks[name, partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            by_leader.setdefault(leader, {}).setdefault(name, []).append(DeleteRecordsPartition(partition, offset))
    for leader, topics in by_leader.items():
        rows = [DeleteRecordsTopic(name, partitions) for name, partitions in topics.items()]
        request = DeleteRecordsRequest(rows, cluster.settings.request_timeout_ms)
        answer = cluster.node_call("deleteRecords", leader, request, DeleteRecordsResponse)
        for result in answer.topics:
            for row in result.partitions:
                low_watermarks[result.name, row.partition_index] = (
                    error_of(row.error_code) if row.error_code else row.low_watermark
                )
    return low_watermarks
