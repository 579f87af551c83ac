"""The fetch loops of a simulated broker: events replace the tasks of `ottla.server.cluster.replication`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.model.ids import NodeId
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.raft.config import Address

if TYPE_CHECKING:
    from ottla.replication.fetcher import FollowedPartition, ReplicaFetcher
    from ottla.simulation.broker import SimulatedBrokerPart
    from ottla.simulation.node import SimulatedNode

FETCH_TIMEOUT_MS = 1_500.0
LONGEST_REST_MS = 50.0


class Following:
    def __init__(self, node: SimulatedNode, part: SimulatedBrokerPart) -> None:
        self._node = node
        self._part = part
        self._busy: set[NodeId] = set()

    def on_changed(self, source: NodeId) -> None:
        """Start to fetch from a leader, unless a loop does so already."""
        if source not in self._busy:
            self._busy.add(source)
            self._node.timers.call_soon(lambda: self._fetch(source))

    def _fetcher(self, source: NodeId) -> ReplicaFetcher:
        return self._part.replicas.fetchers.by_source[source]

    def _fetch(self, source: NodeId) -> None:
        fetcher = self._fetcher(source)
        request = fetcher.request()
        if request is None:
            if not fetcher.followed:
                self._busy.discard(source)
                return
            rest_ms = min(max(fetcher.rest_ms(), 5.0), LONGEST_REST_MS)
            self._node.timers.call_later(rest_ms, lambda: self._fetch(source))
            return
        self._ask(source, request, lambda response: self._on_response(source, response))

    def _ask(self, source: NodeId, request: Any, done: Any) -> None:
        self._part.ask(Address(f"b{source}", 9092), source, request, FETCH_TIMEOUT_MS, done)

    def _on_response(self, source: NodeId, response: Any) -> None:
        fetcher = self._fetcher(source)
        if response is None:
            fetcher.on_failure()
            self._fetch(source)
            return
        fetcher.on_response(response)
        lost = fetcher.out_of_range()
        if lost:
            self._look_up(source, lost[0])
        else:
            self._fetch(source)

    def _look_up(self, source: NodeId, followed: FollowedPartition) -> None:
        """Ask where the leader's log begins and ends, one partition after the other."""
        topic, index = followed.partition.topic_partition
        offsets: dict[int, int] = {}

        def ask(timestamp: int) -> None:
            item = ListOffsetsPartition(index, followed.leader_epoch, timestamp)
            request = ListOffsetsRequest(
                replica_id=self._node.node_id, topics=[ListOffsetsTopic(topic, [item])], timeout_ms=0
            )
            self._ask(source, request, lambda response: answered(timestamp, response))

        def answered(timestamp: int, response: Any) -> None:
            data = None if response is None else response.topics[0].partitions[0]
            offsets[timestamp] = -1 if data is None or data.error_code else data.offset
            if timestamp == EARLIEST:
                ask(LATEST)
            else:
                self._fetcher(source).on_offsets(followed, offsets[EARLIEST], offsets[LATEST])
                self._fetch(source)

        ask(EARLIEST)
