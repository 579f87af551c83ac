"""A node's metrics as Prometheus reads them, under the names that the JMX exporter gives Kafka's beans.

Those names come from the exporter's widely copied rules for Kafka: everything in lower case, PerSec meters as
`_total`, percentiles as a `quantile` label. So dashboards and alerts made for Kafka find their metrics. Metrics that
Kafka does not have begin with `ottla_`. The table METRICS is also the docs page; a test compares it with a real
exporter's output.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from ottla.broker.broker import Broker
from ottla.model.peer_text import cut
from ottla.protocol.generated.index import APIS
from ottla.runtime.loop_watch import BOUNDS_S
from ottla.server.monitoring.group_metrics import GROUP_METRICS, group_samples, lag_samples
from ottla.server.monitoring.metric import Metric, Sample
from ottla.system.processes import open_descriptors

if TYPE_CHECKING:
    from ottla.broker.controller_server import ControllerServer
    from ottla.broker.metrics import BrokerMetrics, TopicCounts
    from ottla.runtime.listener import Listener
    from ottla.runtime.loop_watch import LoopDelays
    from ottla.server.monitoring.group_lag import Lag

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
LOOP_DELAY = "ottla_loop_delay_seconds"
_STARTED = time.time()
_BREATH = 256
"""Samples between two turns of the loop."""


def _topic_metric(name: str, bean: str, doc: str) -> Metric:
    return Metric(
        f"kafka_server_brokertopicmetrics_{name}_total",
        "counter",
        f"kafka.server:type=BrokerTopicMetrics,name={bean}",
        doc,
    )


def _replica_metric(name: str, bean: str, doc: str) -> Metric:
    return Metric(f"kafka_server_replicamanager_{name}", "gauge", f"kafka.server:type=ReplicaManager,name={bean}", doc)


def _controller_metric(name: str, bean: str, doc: str) -> Metric:
    return Metric(
        f"kafka_controller_kafkacontroller_{name}", "gauge", f"kafka.controller:type=KafkaController,name={bean}", doc
    )


def _log_metric(name: str, bean: str, doc: str) -> Metric:
    return Metric(f"kafka_log_log_{name}", "gauge", f"kafka.log:type=Log,name={bean}", doc)


METRICS = (
    _topic_metric("messagesin", "MessagesInPerSec", "Records written by clients."),
    _topic_metric("bytesin", "BytesInPerSec", "Bytes written by clients."),
    _topic_metric("bytesout", "BytesOutPerSec", "Bytes read by clients."),
    _topic_metric("totalproducerequests", "TotalProduceRequestsPerSec", "Produce requests, counted per partition."),
    _topic_metric("totalfetchrequests", "TotalFetchRequestsPerSec", "Fetch requests of clients, counted per partition."),
    _topic_metric("failedproducerequests", "FailedProduceRequestsPerSec", "Refused produce requests, counted per partition."),
    _topic_metric("failedfetchrequests", "FailedFetchRequestsPerSec", "Refused fetch requests of clients, counted per partition."),
    _topic_metric("totalsharefetchrequests", "TotalShareFetchRequestsPerSec", "Share fetch requests, counted per partition."),
    _topic_metric("failedsharefetchrequests", "FailedShareFetchRequestsPerSec", "Refused share fetch requests, counted per partition."),
    _topic_metric("totalshareacknowledgementrequests", "TotalShareAcknowledgementRequestsPerSec", "Share acknowledge requests, counted per partition."),
    _topic_metric("failedshareacknowledgementrequests", "FailedShareAcknowledgementRequestsPerSec", "Refused share acknowledge requests, counted per partition."),
    _replica_metric("partitioncount", "PartitionCount", "Replicas on this broker."),
    _replica_metric("leadercount", "LeaderCount", "Partitions that this broker leads."),
    _replica_metric("underreplicatedpartitions", "UnderReplicatedPartitions", "Partitions that this broker leads, with replicas out of sync."),
    _replica_metric("underminisrpartitioncount", "UnderMinIsrPartitionCount", "Partitions that this broker leads, with fewer in-sync replicas than min.insync.replicas."),
    _replica_metric("atminisrpartitioncount", "AtMinIsrPartitionCount", "Partitions that this broker leads, with exactly min.insync.replicas in sync."),
    _replica_metric("offlinereplicacount", "OfflineReplicaCount", "Replicas on a log directory that failed."),
    _controller_metric("activecontrollercount", "ActiveControllerCount", "1 on the active controller, 0 on other nodes."),
    _controller_metric("activebrokercount", "ActiveBrokerCount", "Brokers that are not fenced."),
    _controller_metric("fencedbrokercount", "FencedBrokerCount", "Brokers that are fenced."),
    _controller_metric("globaltopiccount", "GlobalTopicCount", "Topics of the cluster."),
    _controller_metric("globalpartitioncount", "GlobalPartitionCount", "Partitions of the cluster."),
    _controller_metric("offlinepartitionscount", "OfflinePartitionsCount", "Partitions without a leader."),
    _controller_metric("preferredreplicaimbalancecount", "PreferredReplicaImbalanceCount", "Partitions not led by their first replica."),
    _log_metric("size", "Size", "Bytes of a partition's segments."),
    _log_metric("logstartoffset", "LogStartOffset", "First offset of a partition."),
    _log_metric("logendoffset", "LogEndOffset", "End offset of a partition."),
    _log_metric("numlogsegments", "NumLogSegments", "Segments of a partition."),
    Metric("kafka_log_logmanager_offlinelogdirectorycount", "gauge", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount", "Log directories that failed."),
    Metric("kafka_log_logcleanermanager_uncleanable_partitions_count", "gauge", "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count", "Partitions that compaction has given up on, by log directory."),
    Metric("kafka_network_requestmetrics_requests_total", "counter", "kafka.network:type=RequestMetrics,name=RequestsPerSec", "Requests answered, by API and version."),
    Metric("kafka_network_requestmetrics_totaltimems", "gauge", "kafka.network:type=RequestMetrics,name=TotalTimeMs", "Time from a request to its answer, in ms, of the latest 1024."),
    Metric("kafka_network_requestmetrics_totaltimems_count", "gauge", "kafka.network:type=RequestMetrics,name=TotalTimeMs", "Requests that were timed."),
    Metric(LOOP_DELAY, "histogram", "", "Time until the event loop answered a probe, one probe each 100 ms, in seconds."),
    Metric("ottla_connections", "gauge", "", "Open connections, by listener."),
    *GROUP_METRICS,
    Metric("ottla_master_keys_failures", "gauge", "", "Failed attempts to renew the master keys since the last success; 0 while the key source answers."),
    Metric("ottla_master_keys_age_seconds", "gauge", "", "Time since the command or key server last gave the master keys."),
    Metric("ottla_client_metric", "gauge", "", "Last value that clients pushed (KIP-714), with the client's metric name as a label."),
    Metric("ottla_metadata_offset", "gauge", "", "The last metadata record that this node has applied."),
    Metric("ottla_info", "gauge", "", "1, with version, node and cluster as labels."),
    Metric("process_resident_memory_bytes", "gauge", "", "Memory of the process."),
    Metric("process_cpu_seconds_total", "counter", "", "Processor time of the process."),
    Metric("process_open_fds", "gauge", "", "Open files and sockets."),
    Metric("process_start_time_seconds", "gauge", "", "Time at which the process started, in seconds since 1970."),
)  # fmt: skip
_BY_NAME = {metric.name: metric for metric in METRICS}


async def expose(
    server: Broker | ControllerServer,
    listeners: Iterable[Listener],
    *,
    active_controller: bool,
    resident_bytes: int | None,
    lags: Iterable[Lag] = (),
    delays: LoopDelays | None = None,
) -> str:
    """`resident_bytes`: the memory of the process; None if the system does not report it. Clients can cause many lags,
    so lags and the text of all samples are built in slices, with other work in between.
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in (*_samples(server, listeners, active=active_controller), *_process(server, resident_bytes)):
        by_name.setdefault(sample[0], []).append(sample)
    if delays is not None:
        by_name[LOOP_DELAY] = list(_loop_delays(delays))
    async for sample in _breathing(lag_samples(lags, server.clock.time_ms())):
        by_name.setdefault(sample[0], []).append(sample)
    lines: list[str] = []
    for name in sorted(by_name):
        metric = _BY_NAME[name]
        lines += [f"# HELP {name} {metric.doc}", f"# TYPE {name} {metric.kind}"]
        async for series, labels, value in _breathing(by_name.pop(name)):
            label_text = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{series}{{{label_text}}} {value:.17g}" if label_text else f"{series} {value:.17g}")
    return "\n".join(lines) + "\n"


async def _breathing(samples: Iterable[Sample]) -> AsyncIterator[Sample]:
    for number, sample in enumerate(samples, 1):
        yield sample
        if number % _BREATH == 0:
            await asyncio.sleep(0)


def _escaped(text: str) -> str:
    text = cut(text)
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _samples(server: Broker | ControllerServer, listeners: Iterable[Listener], *, active: bool) -> Iterator[Sample]:
    if server.metrics is not None:
        yield from _topics(server.metrics)
        yield from _requests(server.metrics)
    if isinstance(server, Broker):
        yield from _replicas(server)
        yield from group_samples(server)
        yield from _clients(server)
    yield from _cluster(server, active=active)
    for listener in listeners:
        yield "ottla_connections", {"listener": listener.name}, len(listener)
    renewal = server.master_keys.renewal if server.master_keys is not None else None
    if renewal is not None:
        yield "ottla_master_keys_failures", {}, renewal.failures
        yield "ottla_master_keys_age_seconds", {}, renewal.age_s


def _loop_delays(delays: LoopDelays) -> Iterator[Sample]:
    counts = accumulate(delays.counts)
    total = 0
    for bound, total in zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True):
        yield f"{LOOP_DELAY}_bucket", {"le": bound}, total
    yield f"{LOOP_DELAY}_sum", {}, delays.total_s
    yield f"{LOOP_DELAY}_count", {}, total


def _topics(metrics: BrokerMetrics) -> Iterator[Sample]:
    yield from _counts(metrics.all_topics, {})
    for topic, counts in metrics.topics.items():
        yield from _counts(counts, {"topic": topic})


def _counts(counts: TopicCounts, labels: dict[str, str]) -> Iterator[Sample]:
    prefix = "kafka_server_brokertopicmetrics_"
    yield f"{prefix}messagesin_total", labels, counts.messages_in
    yield f"{prefix}bytesin_total", labels, counts.bytes_in
    yield f"{prefix}bytesout_total", labels, counts.bytes_out
    yield f"{prefix}totalproducerequests_total", labels, counts.produce_requests
    yield f"{prefix}totalfetchrequests_total", labels, counts.fetch_requests
    yield f"{prefix}failedproducerequests_total", labels, counts.failed_produce_requests
    yield f"{prefix}failedfetchrequests_total", labels, counts.failed_fetch_requests
    yield f"{prefix}totalsharefetchrequests_total", labels, counts.share_fetch_requests
    yield f"{prefix}failedsharefetchrequests_total", labels, counts.failed_share_fetch_requests
    yield f"{prefix}totalshareacknowledgementrequests_total", labels, counts.share_acknowledgement_requests
    yield f"{prefix}failedshareacknowledgementrequests_total", labels, counts.failed_share_acknowledgement_requests


def _requests(metrics: BrokerMetrics) -> Iterator[Sample]:
    for api_key, times in metrics.requests.items():
        request = APIS[api_key].name
        for version, count in times.by_version.items():
            labels = {"request": request, "version": str(version)}
            yield "kafka_network_requestmetrics_requests_total", labels, count
        for quantile, taken_ms in zip(QUANTILES, times.quantiles(QUANTILES), strict=True):
            labels = {"request": request, "quantile": str(quantile)}
            yield "kafka_network_requestmetrics_totaltimems", labels, taken_ms
        yield "kafka_network_requestmetrics_totaltimems_count", {"request": request}, times.count


def _replicas(broker: Broker) -> Iterator[Sample]:
    held = led = behind = under = at_minimum = 0
    for partition in broker.replicas:
        held += 1
        labels = {"topic": partition.topic_partition.topic, "partition": str(partition.topic_partition.partition)}
        log = partition.log
        yield "kafka_log_log_size", labels, log.size_bytes
        yield "kafka_log_log_logstartoffset", labels, log.log_start_offset
        yield "kafka_log_log_logendoffset", labels, log.log_end_offset
        yield "kafka_log_log_numlogsegments", labels, len(log.segments)
        if partition.is_leader:
            led += 1
            in_sync = len(partition.isr)
            needed = min(log.config.min_insync_replicas, len(partition.replicas))
            behind += in_sync < len(partition.replicas)
            under += in_sync < needed
            at_minimum += in_sync == needed
    logs = broker.logs.online_logs()
    given_up = Counter(log.log_dir.path for log in logs if log.uncleanable)
    for directory in broker.logs.directories:
        labels = {"logdirectory": directory.path}
        yield "kafka_log_logcleanermanager_uncleanable_partitions_count", labels, given_up[directory.path]
    offline = [directory for directory in broker.logs.directories if directory.offline]
    yield "kafka_server_replicamanager_partitioncount", {}, held
    yield "kafka_server_replicamanager_leadercount", {}, led
    yield "kafka_server_replicamanager_underreplicatedpartitions", {}, behind
    yield "kafka_server_replicamanager_underminisrpartitioncount", {}, under
    yield "kafka_server_replicamanager_atminisrpartitioncount", {}, at_minimum
    yield "kafka_log_logmanager_offlinelogdirectorycount", {}, len(offline)
    yield "kafka_server_replicamanager_offlinereplicacount", {}, _assigned(broker) - held if offline else 0


def _assigned(broker: Broker) -> int:
    topics = broker.image.topics_by_name.values()
    return sum(broker.node_id in row.replicas for topic in topics for row in topic.partitions.values())


def _cluster(server: Broker | ControllerServer, *, active: bool) -> Iterator[Sample]:
    image, prefix = server.image, "kafka_controller_kafkacontroller_"
    yield f"{prefix}activecontrollercount", {}, int(active)
    if active:
        partitions = [row for topic in image.topics_by_name.values() for row in topic.partitions.values()]
        fenced = sum(registration.fenced for registration in image.brokers.values())
        yield f"{prefix}activebrokercount", {}, len(image.brokers) - fenced
        yield f"{prefix}fencedbrokercount", {}, fenced
        yield f"{prefix}globaltopiccount", {}, len(image.topics_by_name)
        yield f"{prefix}globalpartitioncount", {}, len(partitions)
        yield f"{prefix}offlinepartitionscount", {}, sum(row.leader < 0 for row in partitions)
        yield f"{prefix}preferredreplicaimbalancecount", {}, sum(row.leader != row.replicas[0] for row in partitions)
    yield "ottla_metadata_offset", {}, server.metadata_offset


def _clients(broker: Broker) -> Iterator[Sample]:
    if broker.telemetry is None:
        return
    for client, name, labels, value in broker.telemetry.samples():
        client_labels = {
            "name": name,
            "client_id": client.client_id,
            "software": client.software_name,
            "host": client.host,
        }
        yield (
            "ottla_client_metric",
            {**client_labels, "labels": ",".join(f"{key}={text}" for key, text in labels)},
            value,
        )


def _process(server: Broker | ControllerServer, resident_bytes: int | None) -> Iterator[Sample]:
    from ottla import __version__

    usage = resource.getrusage(resource.RUSAGE_SELF)
    labels = {"version": __version__, "node": str(server.node_id), "cluster": server.cluster_id}
    yield "ottla_info", labels, 1
    yield "process_cpu_seconds_total", {}, usage.ru_utime + usage.ru_stime
    yield "process_start_time_seconds", {}, _STARTED
    # Values that the system does not report are left out.
    if resident_bytes is not None:
        yield "process_resident_memory_bytes", {}, resident_bytes
    if (descriptors := open_descriptors()) is not None:
        yield "process_open_fds", {}, descriptors
