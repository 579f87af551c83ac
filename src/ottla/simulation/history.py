"""The recorded history of a cluster, judged at the end: what consumers polled, and the order of acknowledgements.

A consumer polls one partition after the other from the leader, or from the replica in its rack that the leader names
(KIP-392). A batch with a wrong CRC is refused, as clients refuse it. The promises:

- offsets rise from poll to poll, and each batch is the one that was committed there;
- no committed batch is left out, unless an admin or retention deleted it;
- a batch stands once in its partition;
- a record that was sent after the acknowledgement of another record stands behind it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.model.errors import ErrorCode
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.records import crc_matches
from ottla.protocol.records_header import iterate_batches
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.invariants import Violation

if TYPE_CHECKING:
    from ottla.model.ids import NodeId, Offset
    from ottla.replication.fetch_session import Key
    from ottla.simulation.clients import Clients
    from ottla.simulation.composition import Composition
    from ottla.simulation.records import Promise, Records
    from ottla.simulation.replica_invariants import ReplicaInvariants

POLL_BYTES = 6_000
UNKNOWN = -1
EARLIEST = -2


Batches = Mapping[int, tuple[int, int, int]]
"""Base offset -> (last offset, epoch, CRC) of each committed batch."""


class Poll(NamedTuple):
    base: Offset
    last: Offset
    crc: int
    broker: NodeId


@dataclass(slots=True)
class Polled:
    """What one consumer has of a partition, in the order of its polls."""

    position: Offset = 0
    first: Offset = 0
    """From here on the consumer read."""
    polls: list[Poll] = field(default_factory=list)
    resets: list[tuple[Offset, Offset]] = field(default_factory=list)
    """The log began behind the position: from where the consumer jumped, and to where."""
    replica: NodeId = UNKNOWN
    """The replica that the leader has named."""


class RecordedHistory:
    def __init__(
        self, clients: Clients, records: Records, replicas: ReplicaInvariants, composition: Composition
    ) -> None:
        self._clients = clients
        self._records = records
        self._replicas = replicas
        self._composition = composition
        self._dice = random.Random(clients.world.seed * 53 + 29)  # noqa: S311 - a simulation must be repeatable
        self.polled: dict[Key, Polled] = {}
        self.damaged = 0
        """Batches that this consumer refused."""
        self._acknowledged: dict[int, int] = {}
        """CRC of an acknowledged batch -> how many batches had been sent before its acknowledgement."""
        self.sent: dict[int, Key] = {}
        """CRCs in the order in which the batches were sent first."""
        self.stopped = False

    def start(self) -> None:
        self._clients.spawn(self._consume())

    def on_acked(self, promise: Promise) -> None:
        self._acknowledged.setdefault(promise.crc, len(self.sent))

    # ------------------------------------------------------------------------------------------------------------ polling

    async def _consume(self) -> None:
        await asyncio.sleep(2)
        while not self.stopped:
            for key in self._keys():
                try:
                    await self._poll(key, self.polled.setdefault(key, Polled()))
                except NodeUnavailable:
                    self.polled[key].replica = UNKNOWN
            await asyncio.sleep(self._dice.uniform(0.1, 0.4))

    def _keys(self) -> list[Key]:
        image = self._clients.image
        topics = image.topics_by_id.values() if image is not None else ()
        return [(topic.id, index) for topic in topics if topic.name[0] == "t" for index in topic.partitions]

    async def _poll(self, key: Key, polled: Polled) -> None:
        leader = self._records.leader(key)
        broker = polled.replica if polled.replica != UNKNOWN else leader
        if broker is None:
            return
        racks = self._composition.racks
        fetch = FetchPartition(key[1], -1, polled.position, -1, -1, POLL_BYTES)
        request = FetchRequest(
            max_bytes=POLL_BYTES, min_bytes=1, max_wait_ms=0, session_epoch=-1, rack_id="rack-0" if racks else "",
            topics=[FetchTopic(topic_id=key[0], partitions=[fetch])],
        )  # fmt: skip
        response = await self._clients.ask(broker, request)
        for data in (data for topic in response.responses for data in topic.partitions):
            self._on_answer(broker, polled, data)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and leader is not None:
                await self._begin_again(leader, key, polled)

    async def _begin_again(self, leader: NodeId, key: Key, polled: Polled) -> None:
        """At the log's start, if the start is past the position."""
        image = self._clients.image
        topic = image.topics_by_id.get(key[0]) if image is not None else None
        if topic is None:
            return
        partitions = [ListOffsetsPartition(key[1], -1, EARLIEST)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic.name, partitions)])
        response = await self._clients.ask(leader, request)
        answer = response.topics[0].partitions[0]
        if not answer.error_code and answer.offset > polled.position:
            polled.resets.append((polled.position, answer.offset))
            polled.position = answer.offset

    def _on_answer(self, broker: NodeId, polled: Polled, data: Any) -> None:
        if data.error_code:
            polled.replica = UNKNOWN
        elif data.preferred_read_replica != UNKNOWN:
            if data.records:
                raise Violation(f"node {broker} sends a consumer to a closer replica, and sends records, too (KIP-392)")
            polled.replica = data.preferred_read_replica
        else:
            self._on_records(broker, polled, bytes(data.records or b""))

    def _on_records(self, broker: NodeId, polled: Polled, data: bytes) -> None:
        for at, header in iterate_batches(data):
            if not crc_matches(data, at, header.size):
                self.damaged += 1
                polled.replica = UNKNOWN
                return
            if header.last_offset >= polled.position:
                polled.polls.append(Poll(header.base_offset, header.last_offset, header.crc, broker))
                polled.position = header.next_offset

    # ------------------------------------------------------------------------------------------------------------ judging

    def judge(self) -> None:
        for key, polled in self.polled.items():
            truth = self._replicas.truths.get(key)
            if truth is not None and not truth.unclean and self._replicas.exists(key):
                where = f"partition {key[1]} of {key[0]!r}"
                check_polls(where, polled, truth.batches, self._replicas.ledger.asked_to_delete.get(key, 0))
                check_order(where, truth.batches, self.sent, self._acknowledged)


def check_polls(where: str, polled: Polled, batches: Batches, deleted_to: Offset) -> None:
    """What one consumer has got of a partition, against the batches that are committed there."""
    position = -1
    for poll in polled.polls:
        if poll.base <= position:
            raise Violation(f"{where}: a consumer polled {poll} after offset {position}")
        position = poll.last
        if batches.get(poll.base) != (poll.last, batches.get(poll.base, (0, 0, 0))[1], poll.crc):
            raise Violation(f"{where}: a consumer polled {poll}, but {batches.get(poll.base)} is committed")
    polls = {poll.base for poll in polled.polls}
    for base, (last, _, _) in batches.items():
        is_skipped = any(jump_from <= last < jump_to for jump_from, jump_to in polled.resets)
        if polled.first <= last < polled.position and base not in polls and not is_skipped:
            raise Violation(
                f"{where}: a consumer is at {polled.position} and never got the batch that is committed at {base}"
            )
    for _, start in polled.resets:
        if start > deleted_to:
            raise Violation(f"{where}: a consumer had to begin again at {start}, which no client asked to delete")


def check_order(where: str, batches: Batches, sent: Iterable[int], acknowledged: Mapping[int, int]) -> None:
    """From the last offset back: no batch may be sent after the acknowledgement of a batch behind it.

    `sent` has the CRCs in the order in which the batches were sent first, `acknowledged` has for a CRC how many batches
    had been sent before its acknowledgement.
    """
    number = {crc: place for place, crc in enumerate(sent)}
    earliest: tuple[int, int] | None = None
    seen: dict[int, Offset] = {}
    for base in sorted(batches, reverse=True):
        crc = batches[base][2]
        if crc in seen and crc in number:
            raise Violation(f"{where}: the batch at {base} is also at {seen[crc]}")
        seen[crc] = base
        if earliest is not None and number.get(crc, -1) >= earliest[0]:
            raise Violation(f"{where}: the batch at {base} was sent after {earliest[1]} was acknowledged")
        acked_after = acknowledged.get(crc)
        if acked_after is not None and (earliest is None or acked_after < earliest[0]):
            earliest = (acked_after, base)
