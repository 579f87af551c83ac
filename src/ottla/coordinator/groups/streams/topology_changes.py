"""What a heartbeat changes of a group's topology and epoch: initialises the topology, moves the epoch.

The group's epoch moves when a member joined or changed, or when topics of the topology changed. The epoch also moves
when the topology became valid or invalid, and when settings of the assignment changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.coordinator.decisions import Draft
from ottla.coordinator.groups.group import GroupKind
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.streams.configuration import ConfiguredSubtopology, ConfiguredTopology, configure
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.group_records import group_record, topology_record
from ottla.coordinator.groups.streams.tasks import TargetTasks
from ottla.coordinator.groups.streams.timings import StreamsTimings
from ottla.coordinator.groups.streams.topology import StreamsTopology, topology_value
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, Topology

log = get_logger(__name__)

_NOT_VALIDATED = -1


@dataclass(frozen=True, slots=True)
class TopologyChange:
    group: StreamsGroup
    group_epoch: int
    configured: ConfiguredTopology
    metadata_hash: int

    def apply(self) -> None:
        """Set the state that is not durable.

        The log may still refuse the records of this heartbeat: the group hashes the topics again until their hash is in
        the log.
        """
        self.group.configured, self.group.configured_hash = self.configured, self.metadata_hash
        if self.group.topology is not None and self.metadata_hash == self.group.metadata_hash:
            self.group.refreshed()


class TopologyChanges:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def update(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        timings: StreamsTimings,
        draft: Draft,
        *,
        member_changed: bool,
    ) -> TopologyChange:
        topology = _topology(group, request.topology, draft)
        metadata_hash = group.metadata_hash
        configured = group.configured
        if group.topology is None or configured is None or group.refresh_due:
            image = self._context.image
            metadata_hash = self._context.topic_hashes.group_hash(topology.required_topics, image)
            if group.topology is None or configured is None or metadata_hash != group.configured_hash:
                configured = configure(topology, image)
        validated_epoch = topology.epoch if configured.is_ready else _NOT_VALIDATED
        bump = (
            member_changed
            or metadata_hash != group.metadata_hash
            or validated_epoch != group.validated_topology_epoch
            or timings.assignment_configs != group.assignment_configs
        )
        epoch = group.group_epoch
        if bump:
            epoch += 1
            draft.records.append(
                group_record(group.group_id, epoch, metadata_hash, validated_epoch, timings.assignment_configs)
            )
            log.info("group.epoch_bumped", group=group.group_id, epoch=epoch)
            self._context.rebalances[GroupKind.STREAMS] += 1
        return TopologyChange(group, epoch, configured, metadata_hash)


def validate_tasks(subtopologies: Mapping[str, ConfiguredSubtopology], owned: TargetTasks | None) -> None:
    """Raises KafkaError when the member reports a task that the topology does not have."""
    for tasks in owned or ():
        for subtopology, partitions in tasks.items():
            configured = subtopologies.get(subtopology)
            if configured is None:
                raise _invalid(f"Subtopology {subtopology} does not exist in the topology.")
            for partition in sorted(partitions):
                if not 0 <= partition < configured.tasks:
                    raise _invalid(
                        f"Task {partition} for subtopology {subtopology} is invalid. Number of tasks for this "
                        f"subtopology: {configured.tasks}"
                    )


def _topology(group: StreamsGroup, sent: Topology | None, draft: Draft) -> StreamsTopology:
    """The group's topology: the topology of the first member."""
    if sent is None:
        if group.topology is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the group has no topology")
        return group.topology
    value = topology_value(sent)
    topology = StreamsTopology(value)
    if topology.epoch < 0 or len(topology.subtopologies) != len(value.subtopologies):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the topology has a negative epoch or a subtopology twice")
    if group.topology is None:
        draft.records.append(topology_record(group.group_id, value))
        log.info("topology.initialized", group=group.group_id, epoch=topology.epoch)
        return topology
    if group.topology.epoch <= topology.epoch and group.topology != topology:
        raise _invalid("Topology updates are not supported yet.")
    return group.topology


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
