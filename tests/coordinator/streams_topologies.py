"""Topologies of Kafka Streams applications, as a first heartbeat brings them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.protocol.generated.streams_group_heartbeat_request import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

Tasks = Mapping[str, Sequence[int]]


def internal(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    """`cleanup_policy="compact"` is cleanup.policy."""
    settings = [KeyValue(key.replace("_", "."), value) for key, value in configs.items()]
    return TopicInfo(name, partitions, 0, settings)


def subtopology(
    subtopology_id: str,
    sources: Sequence[str],
    *,
    sinks: Sequence[str] = (),
    repartition: Sequence[TopicInfo] = (),
    changelogs: Sequence[TopicInfo] = (),
    joined: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
) -> Subtopology:
    """`joined`: copartition groups, by their places among the sources and the repartition sources."""
    return Subtopology(
        subtopology_id=subtopology_id,
        source_topics=list(sources),
        state_changelog_topics=list(changelogs),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(repartition),
        copartition_groups=[CopartitionGroup(list(places), [], list(others)) for places, others in joined],
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch, list(subtopologies))


def word_count(source: str, repartition: str, changelog: str) -> Topology:
    """Split lines, repartition by word, count into a store."""
    return topology(
        subtopology("0", [source], sinks=[repartition]),
        subtopology(
            "1",
            [],
            repartition=[internal(repartition, cleanup_policy="delete")],
            changelogs=[internal(changelog, cleanup_policy="compact")],
        ),
    )


def beating(group: str, member: str, epoch: int, brought: Topology | None = None) -> StreamsGroupHeartbeatRequest:
    """A heartbeat with nothing but its epoch; the first heartbeat has all required fields."""
    joins = epoch == 0
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if joins else -1,
        topology=brought,
        active_tasks=[] if joins else None,
        standby_tasks=[] if joins else None,
        warmup_tasks=[] if joins else None,
        process_id=f"process-{member}" if joins else None,
        client_tags=[] if joins else None,
    )


def task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id, sorted(partitions)) for subtopology_id, partitions in tasks.items()]
