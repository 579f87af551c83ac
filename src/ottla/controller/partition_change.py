"""The one place where a partition's leader, ISR, ELR and replicas are decided: a target becomes a change record.

A leader comes from the ISR, or from the ELR if the ISR is empty (KIP-966). If both are empty, the last known leader is
elected. With unclean elections, any replica that is alive can be elected. A replica that leaves an ISR below
min.insync.replicas joins the ELR. The ELR is emptied when the ISR is large enough again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter

from ottla.controller.state import ControllerState, has_online_directory
from ottla.metadata.features import DIRECTORY_ASSIGNMENT_SINCE
from ottla.metadata.image import RECOVERED, RECOVERING, PartitionRegistration
from ottla.metadata.records import NO_CHANGE, PartitionChangeRecord
from ottla.model.ids import NO_NODE, NodeId, Uuid


class Election(Enum):
    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


@dataclass(slots=True, kw_only=True)
class PartitionChange:
    """Set the targets that differ, then `build`."""

    partition: PartitionRegistration
    topic_id: Uuid
    index: int
    acceptable_leader: Callable[[NodeId], bool]
    default_directory: Callable[[NodeId], Uuid]
    metadata_version: int
    min_isr: int
    elr_enabled: bool
    election: Election = Election.ONLINE
    unclean_shutdown: NodeId = NO_NODE
    isr: list[NodeId] = field(init=False)
    replicas: list[NodeId] = field(init=False)
    adding: list[NodeId] = field(init=False)
    removing: list[NodeId] = field(init=False)
    elr: list[NodeId] = field(init=False)
    leader_recovery_state: int = field(init=False)
    directories: dict[NodeId, Uuid] = field(init=False)

    def __post_init__(self) -> None:
        partition = self.partition
        self.isr = list(partition.isr)
        self.replicas = list(partition.replicas)
        self.adding = list(partition.adding)
        self.removing = list(partition.removing)
        self.elr = list(partition.elr)
        self.leader_recovery_state = partition.leader_recovery_state
        self.directories = dict(zip(partition.replicas, partition.directories, strict=False))

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None when nothing changes."""
        record = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id)
        self._complete_reassignment()
        self._target_elr()
        self._elect(record)
        if record.leader == NO_CHANGE and not set(self.partition.replicas) <= set(self.replicas):
            # A replica leaves: the leader epoch must rise, so that its late answers are recognized as old.
            record.leader = self.partition.leader
        self._record_elr(record)
        if record.isr is None and (self.isr or self.elr_enabled) and tuple(self.isr) != self.partition.isr:
            record.isr = self.isr
        self._record_last_known_leader(record)
        self._record_assignment(record)
        if self.leader_recovery_state != self.partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        return None if _is_empty(record) else record

    # ------------------------------------------------------------------------------------------------------- election

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._choose_leader()
        if leader == self.partition.leader:
            return
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [replica for replica in self.elr if replica != leader]
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self.partition.leader_recovery_state == RECOVERED:
                record.leader_recovery_state = RECOVERING

    def _choose_leader(self) -> tuple[NodeId, bool]:
        """The leader and whether the choice is unclean."""
        candidates = list(self.replicas)
        if self.election is Election.PREFERRED:
            candidates = [self.replicas[0], self.partition.leader, *self.replicas[1:]]
        else:
            candidates = [self.partition.leader, *self.replicas]
        for candidate in candidates:
            if self._valid_leader(candidate):
                return candidate, False
        if self._may_elect_last_known():
            return self.partition.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for candidate in self.replicas:
                if self.acceptable_leader(candidate):
                    return candidate, True
        return NO_NODE, False

    def _valid_leader(self, replica: NodeId) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self.elr)
        return in_sync and self.acceptable_leader(replica)

    def _may_elect_last_known(self) -> bool:
        last_known_elr = self.partition.last_known_elr
        if not self.elr_enabled or self.isr or self.elr or len(last_known_elr) != 1:
            return False
        return self.acceptable_leader(last_known_elr[0])

    # ------------------------------------------------------------------------------------------------ ELR, replicas

    def _target_elr(self) -> None:
        if not self.elr_enabled:
            return
        if len(self.isr) >= self.min_isr:
            self.elr = []
            return
        candidates = dict.fromkeys([*self.elr, *self.partition.isr])
        self.elr = sorted(r for r in candidates if r not in self.isr and r != self.unclean_shutdown)

    def _record_elr(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or not self.elr_enabled:
            self.elr = []
        if tuple(self.elr) != self.partition.elr:
            record.eligible_leader_replicas = self.elr

    def _record_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if not self.elr_enabled:
            return
        last_known_elr = self.partition.last_known_elr
        if record.isr is not None and not record.isr:
            # Without a leader, the last ISR has every committed record. Apache Kafka 4.3 records -1 there, so that the
            # partition stays without a leader until an admin elects one.
            last_leader = self.partition.leader if self.partition.has_leader else self.partition.isr[0]
            if last_known_elr != (last_leader,):
                record.last_known_elr = [last_leader]
        elif last_known_elr and (record.leader >= 0 or (self.partition.has_leader and record.leader != NO_NODE)):
            record.last_known_elr = []

    def _complete_reassignment(self) -> None:
        """The second half of a reassignment, once every target replica is in the ISR."""
        if not (self.adding or self.removing):
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        if self.removing and not (isr and replicas):
            return
        if set(replicas) <= set(isr):
            self.isr, self.replicas, self.adding, self.removing = isr, replicas, [], []

    def _record_assignment(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self.replicas:
            if self.metadata_version >= DIRECTORY_ASSIGNMENT_SINCE:
                directories = [self.directories.get(r) or self.default_directory(r) for r in self.replicas]
                if tuple(directories) != partition.directories:
                    record.directories = directories
            if tuple(self.replicas) != partition.replicas:
                record.replicas = self.replicas
        if tuple(self.removing) != partition.removing:
            record.removing_replicas = self.removing
        if tuple(self.adding) != partition.adding:
            record.adding_replicas = self.adding


_changes_of = attrgetter(
    *(name for name in PartitionChangeRecord.__slots__ if name not in ("partition_id", "topic_id"))
)
_NO_CHANGES = _changes_of(PartitionChangeRecord())


def _is_empty(record: PartitionChangeRecord) -> bool:
    return bool(_changes_of(record) == _NO_CHANGES)


def partition_change(
    state: ControllerState,
    topic: str,
    topic_id: Uuid,
    index: int,
    partition: PartitionRegistration,
    *,
    alive: Callable[[NodeId], bool] | None = None,
    min_isr: int | None = None,
) -> PartitionChange:
    """A change of one partition, filled with the controller's state. `alive` overrides which brokers may lead.
    `min_isr` avoids a look-up for every partition of a topic.
    """
    brokers = state.image.brokers
    is_alive = alive or state.active

    def acceptable(replica: NodeId) -> bool:
        broker = brokers.get(replica)
        return broker is not None and is_alive(replica) and has_online_directory(broker, partition.directory(replica))

    return PartitionChange(
        partition=partition,
        topic_id=topic_id,
        index=index,
        acceptable_leader=acceptable,
        default_directory=state.default_directory,
        metadata_version=state.image.metadata_version,
        min_isr=state.min_isr(topic) if min_isr is None else min_isr,
        elr_enabled=state.image.elr_enabled,
    )
