"""The metrics of groups: how many there are, how far behind they are, and what share groups do (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.coordinator.groups.group import GroupKind
from ottla.coordinator.runtime import ShardState
from ottla.coordinator.share.in_flight import ACCEPT, REJECT, RELEASE, RENEW
from ottla.server.monitoring.metric import Metric, Sample

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.metrics import BrokerMetrics
    from ottla.server.monitoring.group_lag import Lag

_ACKNOWLEDGEMENTS = {ACCEPT: "Accept", RELEASE: "Release", REJECT: "Reject", RENEW: "Renew"}
_CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
_STATES = {
    GroupKind.CONSUMER: ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    GroupKind.SHARE: ("Empty", "Stable", "Dead"),
    GroupKind.STREAMS: ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
}
_REBALANCES = {
    GroupKind.CLASSIC: ("group-completed-rebalance-count", "Rebalances of classic groups that this broker completed."),
    GroupKind.CONSUMER: ("consumer-group-rebalance-count", "Rebalances of consumer groups that this broker started."),
    GroupKind.SHARE: ("share-group-rebalance-count", "Rebalances of share groups that this broker started."),
    GroupKind.STREAMS: ("streams-group-rebalance-count", "Rebalances of streams groups that this broker started."),
}
_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
_COORDINATOR = "kafka_server_group_coordinator_metrics_"
_SHARE = "kafka_server_share"


def _manager_metric(bean: str, doc: str) -> Metric:
    return Metric(
        f"{_MANAGER}{bean.lower()}", "gauge", f"kafka.coordinator.group:type=GroupMetadataManager,name={bean}", doc
    )


def _coordinator_metric(attribute: str, label: str, doc: str) -> Metric:
    bean = f"kafka.server:type=group-coordinator-metrics{f',{label}=*' if label else ''}:{attribute}"
    return Metric(_COORDINATOR + attribute.replace("-", "_"), "gauge", bean, doc)


def _share_metric(kind: str, group: str, bean: str, doc: str) -> Metric:
    name = bean.removesuffix("PerSec").lower() + ("_total" if kind == "counter" else "")
    return Metric(f"{_SHARE}{group.lower()}_{name}", kind, f"kafka.server:type=Share{group},name={bean}", doc)


GROUP_METRICS = (
    _manager_metric("NumOffsets", "Committed offsets that this broker keeps."),
    _manager_metric("NumGroups", "Classic groups that this broker coordinates."),
    *(_manager_metric(f"NumGroups{state}", f"Classic groups that this broker coordinates, in the state {state}.") for state in _CLASSIC_STATES),
    _coordinator_metric("group-count", "protocol", "Groups that this broker coordinates, by protocol."),
    _coordinator_metric("consumer-group-count", "state", "Consumer groups that this broker coordinates, by state."),
    _coordinator_metric("share-group-count", "state", "Share groups that this broker coordinates, by state."),
    _coordinator_metric("streams-group-count", "state", "Streams groups that this broker coordinates, by state."),
    *(_coordinator_metric(name, "", doc) for name, doc in _REBALANCES.values()),
    _share_metric("counter", "GroupMetrics", "RecordAcknowledgementsPerSec", "Records that members acknowledged, by kind of acknowledgement."),
    _share_metric("gauge", "PartitionMetrics", "InFlightMessageCount", "Records between the share partition's start offset and end offset."),
    _share_metric("gauge", "PartitionMetrics", "InFlightBatchCount", "Ranges of in-flight records that are in one state."),
    _share_metric("counter", "PartitionMetrics", "AcquisitionLockTimeoutPerSec", "Records whose lock expired before their member acknowledged them."),
    _share_metric("gauge", "SessionCache", "ShareSessionsCount", "Share sessions on this broker."),
    _share_metric("gauge", "SessionCache", "SharePartitionsCount", "Partitions in the share sessions of this broker."),
    Metric("ottla_group_lag_records", "gauge", "", "Records that a group of this coordinator has not read yet."),
    Metric("ottla_group_lag_seconds", "gauge", "", "Age of the oldest record that the group has not read, by its timestamp."),
    Metric("ottla_group_uncommitted_records", "gauge", "", "Records in partitions that a member owns without a commit, counted from the start of the partition."),
    Metric("ottla_group_count", "gauge", "", "Groups that this broker coordinates, by kind and state."),
)  # fmt: skip


def group_samples(broker: Broker) -> Iterator[Sample]:
    if broker.has_groups:
        yield from _counts(broker)
    if broker.has_shares:
        yield from _shares(broker)


def lag_samples(lags: Iterable[Lag], now_ms: int) -> Iterator[Sample]:
    for lag in lags:
        labels = {"group": lag.group, "topic": lag.topic, "partition": str(lag.partition)}
        if not lag.committed:  # the member may start at the end: no alarm for records that it does not want
            yield "ottla_group_uncommitted_records", labels, lag.records
            continue
        yield "ottla_group_lag_records", labels, lag.records
        if lag.records == 0:
            yield "ottla_group_lag_seconds", labels, 0
        elif lag.since_ms is not None:
            yield "ottla_group_lag_seconds", labels, max(0, now_ms - lag.since_ms) / 1000


def _counts(broker: Broker) -> Iterator[Sample]:
    counts: dict[tuple[GroupKind, str], int] = {}
    offsets = 0
    for shard in broker.groups.shards:
        if shard.state is ShardState.ACTIVE:
            offsets += len(shard.machine.offsets)
            for group in shard.machine.groups.values():
                key = group.kind, group.state_name
                counts[key] = counts.get(key, 0) + 1
    of_kind = {
        kind: sum(count for (group_kind, _), count in counts.items() if group_kind is kind) for kind in GroupKind
    }
    yield f"{_MANAGER}numoffsets", {}, offsets
    yield f"{_MANAGER}numgroups", {}, of_kind[GroupKind.CLASSIC]
    for state in _CLASSIC_STATES:
        yield f"{_MANAGER}numgroups{state.lower()}", {}, counts.get((GroupKind.CLASSIC, state), 0)
    for kind, count in of_kind.items():
        yield f"{_COORDINATOR}group_count", {"protocol": kind.value}, count
    for kind, states in _STATES.items():
        for state in states:
            yield f"{_COORDINATOR}{kind.value}_group_count", {"state": state}, counts.get((kind, state), 0)
    for kind, (attribute, _) in _REBALANCES.items():
        yield _COORDINATOR + attribute.replace("-", "_"), {}, broker.groups.rebalances[kind]
    for (kind, state), count in counts.items():
        yield "ottla_group_count", {"kind": kind.value, "state": state}, count


def _shares(broker: Broker) -> Iterator[Sample]:
    names = broker.replicas.names
    for share_partition in broker.shares:
        key = share_partition.key
        labels = {"group": key.group_id, "topic": names.get(key.topic_id, ""), "partition": str(key.partition)}
        if share_partition.in_flight is not None:
            yield f"{_SHARE}partitionmetrics_inflightmessagecount", labels, share_partition.in_flight.in_flight
            yield f"{_SHARE}partitionmetrics_inflightbatchcount", labels, len(share_partition.in_flight.runs)
        yield f"{_SHARE}partitionmetrics_acquisitionlocktimeout_total", labels, share_partition.lock_timeouts
    yield f"{_SHARE}sessioncache_sharesessionscount", {}, len(broker.shares.sessions)
    yield f"{_SHARE}sessioncache_sharepartitionscount", {}, broker.shares.sessions.partition_count
    if broker.metrics is not None:
        yield from _words(broker.metrics)


def _words(metrics: BrokerMetrics) -> Iterator[Sample]:
    for kind, name in _ACKNOWLEDGEMENTS.items():
        count = metrics.acknowledgements.get(kind, 0)
        yield f"{_SHARE}groupmetrics_recordacknowledgements_total", {"acktype": name}, count
